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
  /// The greatest length of a line, in bytes.
  ///
  /// A pipe that has room at all has room for a line of this length (POSIX): 4,096 bytes on Linux,
  /// 512 on Darwin.
  static let maxLength = Int(PIPE_BUF)

  /// Writes a line; if that fails, or would have to wait, the message is lost.
  ///
  /// A reader that does not keep up, or has gone, must not stop a store.
  static func write(_ message: String) { _ = write(message, to: STDERR_FILENO) }

  /// - Returns: Whether the line was written.
  static func write(_ message: String, to file: Int32) -> Bool {
    var line = Array("Steadfast: \(message)".utf8)
    if line.count >= maxLength {
      line.removeSubrange((maxLength - 4)...)
      // Half a character at the end would not be read.
      while let last = line.last, last & 0xC0 == 0x80 { line.removeLast() }
      if let last = line.last, last >= 0xC0 { line.removeLast() }
      line += "…".utf8
    }
    line.append(UInt8(ascii: "\n"))
    guard takesBytes(file) else { return false }
    return systemWrite(file, line) == line.count
  }

  /// Returns whether a write would neither wait nor raise a signal.
  private static func takesBytes(_ file: Int32) -> Bool {
    var status = pollfd(fd: file, events: Int16(POLLOUT), revents: 0)
    // Darwin's `poll` knows not every device, and says so (POLLNVAL); a write tells more then.
    return unsafe poll(&status, 1, 0) == 1 && status.revents & Int16(POLLERR | POLLHUP) == 0
  }
}

// The name of this call is also the name of the method above.
private func systemWrite(_ file: Int32, _ bytes: [UInt8]) -> Int {
  unsafe write(file, bytes, bytes.count)
}
