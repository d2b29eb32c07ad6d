#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// What a lock file holds: the number of the process that has the lock.
extension FileLock {
  /// The most bytes that a lock file holds.
  private static let maxLength = 32

  /// Refuses a locked file that holds something else than a lock file does, before it is written.
  ///
  /// It may be another queue's file, or another program's. A lock file has digits and line feeds. A
  /// power cut may leave zeros in place of them, and so may processes that share the lock and write
  /// their numbers at the same time.
  static func refuseOtherContents(_ file: Opened) throws(Failure) {
    let bytes: [UInt8]
    do {
      bytes = try read(file.descriptor, maxLength + 1)
    } catch {
      throw .systemCall(error)
    }
    guard bytes.count <= maxLength,
      bytes.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || $0 == 0x0A || $0 == 0 })
    else {
      throw unfit(
        file.path,
        "it holds something else than the number of a process",
        advice: "it was not changed; move it away, or choose another file"
      )
    }
  }

  /// Writes this process's number into the lock file, for the messages of other processes.
  ///
  /// The lock is valid without it: on a full disk, for example, their messages have no number.
  static func writeHolder(_ file: Int32) {
    let text = Array("\(getpid())\n".utf8)
    // Overwriting a number that is there already needs no room on a full disk.
    let written = unsafe pwrite(file, text, text.count, 0)
    _ = ftruncate(file, off_t(max(0, written)))
  }

  /// Returns the number of the process that has the lock, or `nil` if it can't be told.
  static func holder(_ file: Int32) -> Int32? {
    guard let text = try? read(file, maxLength), !text.isEmpty,
      let process = Int32(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self))
    else { return nil }
    // The number may be of no process here: a forked child may hold the lock after the process that
    // took it has ended, and a process of another container has another number here.
    return kill(process, 0) == 0 || errno != ESRCH ? process : nil
  }

  private static func read(_ file: Int32, _ count: Int) throws(SystemCallError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let length = try SystemCall.retryingInterrupted("read") {
      unsafe pread(file, &bytes, count, 0)
    }
    return Array(bytes.prefix(length))
  }
}
