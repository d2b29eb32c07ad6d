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
    state.withLock { ($0.path, $0.file) = (path, file) }
  }

  /// Opens the file for a thread that reads.
  ///
  /// - Throws: A ``SQLiteError`` if another file has its name by now.
  func openedForReading(_ place: StorePlace) throws -> Connection {
    let (path, file) = state.withLock { ($0.path, $0.file) }
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
