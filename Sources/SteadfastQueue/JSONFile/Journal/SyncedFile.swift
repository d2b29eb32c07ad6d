import Synchronization

/// A journal's file, which one thread may write while another flushes it.
///
/// Flushes are performed one after another: if two ran at the same time, the system would report
/// lost bytes to only one of them. After a failed flush, the file accepts no further calls: the
/// system may have dropped what it could not write, and would report success the next time.
///
/// A file is also given up without a failure, when another file has taken its place. All that was
/// written is durable in the new file, so a flush of the old one that comes late has nothing to do.
final class SyncedFile: Sendable {
  private let file: any JournalFile
  /// Serializes flushes, and holds whether the file was given up.
  private let isClosed = Mutex(false)
  private let poison = Mutex<SystemCallError?>(nil)

  init(_ file: any JournalFile) { self.file = file }

  func checkPoison() throws(Journal.Failure) {
    if let error = poison.withLock({ $0 }) { throw .poisoned(error) }
  }

  /// Makes everything durable that was written before the call.
  func synchronize() throws(Journal.Failure) {
    try isClosed.withLock { isClosed throws(Journal.Failure) in
      try checkPoison()
      guard !isClosed else { return }
      try poisoning { () throws(SystemCallError) in try file.synchronize() }
    }
  }

  func size() throws(SystemCallError) -> Int { try file.size() }

  func write(_ bytes: [UInt8], at offset: Int) throws(SystemCallError) {
    try file.writeAll(bytes[...], at: offset)
  }

  /// Shortens the file.
  ///
  /// If that fails, the file accepts no further calls.
  func truncate(to size: Int) throws(Journal.Failure) {
    try poisoning { () throws(SystemCallError) in try file.truncate(to: size) }
  }

  private func poisoning(_ body: () throws(SystemCallError) -> Void) throws(Journal.Failure) {
    do {
      try body()
    } catch {
      poison.withLock { $0 = error }
      throw .poisoned(error)
    }
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try file.read(count, at: offset)
  }

  /// Closes the file after a flush that is under way has ended.
  ///
  /// A flush that begins during the call does not wait: the system takes long to close a large file
  /// that has no name any more.
  func close() {
    isClosed.withLock { $0 = true }
    file.close()
  }
}
