import Synchronization

/// A journal's file, which may be written by one thread while another flushes it.
///
/// Flushes come one after another: of two at the same time the system would tell only one that
/// bytes were lost. After one that has failed, the file takes no further calls: the system may have
/// dropped what it could not write, and would say next time that all is well.
///
/// A file is given up without a failure when another one has taken its place, in which all that was
/// written is durable: a flush that was begun before, and comes later, has nothing to do.
final class FlushedFile: Sendable {
  private let file: any JournalFile
  /// Whose turn it is to flush, and whether the file was given up.
  private let isClosed = Mutex(false)
  private let poison = Mutex<SystemCallError?>(nil)

  init(_ file: any JournalFile) { self.file = file }

  func checkPoison() throws(Journal.Failure) {
    if let error = poison.withLock({ $0 }) { throw .poisoned(error) }
  }

  /// Makes durable what was written before the call.
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

  /// Cuts the file; if that fails, the file takes no further calls.
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

  /// Gives the file up, when a flush that is under way has ended.
  ///
  /// One that comes meanwhile does not wait: to close a large file that has no name any more takes
  /// the system long.
  func close() {
    isClosed.withLock { $0 = true }
    file.close()
  }
}
