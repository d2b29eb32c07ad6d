import SteadfastQueue
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A new file to which lines are appended.
///
/// Each line is handed to the system before `append` returns, so that it outlasts the process. If
/// that fails, no line follows any more: the file ends with a line that may be cut.
final class HistoryFile: Sendable {
  private let path: String
  private let descriptor: Int32
  private let isBroken = Mutex(false)

  init(_ path: String) throws(HistoryError) {
    self.path = path
    descriptor = unsafe open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else {
      throw HistoryError(
        "the history \(path) can't be made: \(SystemCallError.last("open")); "
          + "give each process a new file"
      )
    }
  }

  deinit { _ = close(descriptor) }

  func append(_ line: HistoryLine) throws {
    var bytes = try StableJSON.encode(line)
    bytes.append(UInt8(ascii: "\n"))
    try isBroken.withLock { isBroken in
      guard !isBroken else {
        throw HistoryError("the history \(path) is incomplete, because a line was not written")
      }
      // Lifted again once the whole line is written.
      isBroken = true
      var written = 0
      while written < bytes.count {
        // The range is within the bytes.
        let count = unsafe bytes.withUnsafeBytes { bytes in
          unsafe write(descriptor, bytes.baseAddress?.advanced(by: written), bytes.count - written)
        }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else {
          let error = count < 0 ? SystemCallError.last("write") : .nothingWritten
          throw HistoryError("the history \(path) can't be written: \(error)")
        }
        written += count
      }
      isBroken = false
    }
  }
}
