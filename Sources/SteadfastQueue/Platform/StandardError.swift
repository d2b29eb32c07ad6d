#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Messages to the people who run a program, about matters that concern no caller.
enum StandardError {
  /// Writes a line; if that fails, the message is lost.
  static func write(_ message: String) {
    _ = systemWrite(STDERR_FILENO, Array("Steadfast: \(message)\n".utf8))
  }
}

// The name of this call is also the name of the method above.
private func systemWrite(_ file: Int32, _ bytes: [UInt8]) -> Int {
  unsafe write(file, bytes, bytes.count)
}
