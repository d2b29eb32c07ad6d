#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Messages to the people who run a program, about matters that concern no caller.
enum StandardError {
  /// Writes a line; if that fails, the message is lost.
  static func write(_ message: String) {
    let text = Array("Steadfast: \(message)\n".utf8)
    _ = unsafe text.withUnsafeBytes { unsafe systemWrite(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}

// The name of this call is also the name of the method above.
private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  unsafe write(file, bytes, count)
}
