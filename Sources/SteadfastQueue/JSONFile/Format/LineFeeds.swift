#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

extension [UInt8] {
  /// Returns the index of the first line feed from `start` on, or `nil` if there is none.
  func lineFeed(from start: Int) -> Int? {
    guard start < count else { return nil }
    // The C library searches many bytes at a time, and none beyond the count.
    return unsafe withUnsafeBytes { bytes in
      guard let base = bytes.baseAddress,
        let found = unsafe memchr(base + start, 0x0A, bytes.count - start)
      else { return nil }
      return unsafe UnsafeRawPointer(found) - base
    }
  }
}
