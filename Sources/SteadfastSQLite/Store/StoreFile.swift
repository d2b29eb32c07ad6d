#if SQLite
import SystemSQLite
import SteadfastQueue
import Synchronization

/// The file that the thread that writes has opened, and the lock that keeps other stores out.
///
/// The path of a store may lead to another file later. Its real path may, too.
final class StoreFile: Sendable {
  private struct State {
    var path = ""
    var file: FileIdentity?
    /// The write-ahead log and its index, which SQLite has open beside the file.
    var others: [FileIdentity?] = []
    var lock: FileLock?
  }

  private let state = Mutex(State())

  /// Notes the file that a connection has opened.
  ///
  /// - Throws: A ``SQLiteError`` if another file has its name by now.
  func note(_ database: Connection, _ place: StorePlace) throws {
    let path = database.path
    let file = try FileIdentity.following(path)
    guard file != nil, !database.hasMoved else { throw place.displaced }
    let others = try Self.others(beside: path)
    state.withLock { ($0.path, $0.file, $0.others) = (path, file, others) }
  }

  /// Returns the log and its index beside a file.
  ///
  /// SQLite does not notice that another program has deleted or replaced them, and loses what it
  /// writes then.
  private static func others(beside path: String) throws -> [FileIdentity?] {
    try ["-wal", "-shm"].map { try FileIdentity.following(path + $0) }
  }

  /// Checks that what a connection has open still has its names.
  ///
  /// - Throws: A ``SQLiteError`` if not.
  func check(_ database: Connection, _ place: StorePlace) throws {
    let (path, others) = state.withLock { ($0.path, $0.others) }
    guard !database.hasMoved, try Self.others(beside: path) == others else {
      throw place.displaced
    }
  }

  /// Opens the file for a thread that reads.
  ///
  /// - Throws: A ``SQLiteError`` if another file has its name or that of its log by now.
  func openedForReading(_ place: StorePlace) throws -> Connection {
    let (path, file, others) = state.withLock { ($0.path, $0.file, $0.others) }
    // A new connection would make a new log.
    guard try Self.others(beside: path) == others else { throw place.displaced }
    let database = Result { () throws(SQLiteFailure) in
      try Connection(path, .reading, prefix: place.prefix)
    }
    guard try FileIdentity.following(path) == file else { throw place.displaced }
    return try database.get()
  }

  /// The write-ahead log of the file; `nil` if none is open.
  var logPath: String? {
    state.withLock { $0.file == nil ? nil : $0.path + "-wal" }
  }

  // MARK: The lock

  func hold(_ lock: FileLock) { state.withLock { $0.lock = lock } }

  /// Returns the lock, which its last reference gives up; `nil` if there is none.
  func takeLock() -> FileLock? {
    state.withLock { state in
      defer { state.lock = nil }
      return state.lock
    }
  }

  func giveUpLock() { _ = takeLock() }
}
#endif
