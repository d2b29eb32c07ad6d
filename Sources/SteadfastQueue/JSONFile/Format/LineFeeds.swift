#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

extension [UInt8] {
  /// Where the first line feed stands from an index on; `nil` if none does.
  func lineFeed(from start: Int) -> Int? {
    guard start < count else { return nil }
    // The C library looks at many bytes at once, none of them beyond the count.
    return unsafe withUnsafeBytes { bytes in
      guard let base = bytes.baseAddress,
        let found = unsafe memchr(base + start, 0x0A, bytes.count - start)
      else { return nil }
      return unsafe UnsafeRawPointer(found) - base
    }
  }
}
