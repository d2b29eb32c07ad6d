#if SQLite
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import SystemSQLite
import SystemFoundation

/// The location of the tables, and the errors that name the location.
struct DatabaseLocation: Sendable {
  let url: URL
  /// The prefix of the names of the tables.
  let prefix: String

  var path: String { url.path }

  /// Throws if the location can't contain the tables.
  func checkArguments() throws(SQLiteError) {
    guard url.isFileURL, !path.isEmpty, !path.utf8.contains(0) else {
      throw SQLiteError(.invalidArgument, url, "\(url) does not name a file; use a file URL")
    }
    let isWord =
      prefix.utf8.first.map { $0 | 0x20 >= 0x61 && $0 | 0x20 <= 0x7A } ?? false
      && prefix.utf8.count <= 40
      && prefix.utf8.allSatisfy { byte in
        byte == UInt8(ascii: "_") || (0x30...0x39).contains(byte)
          || (0x61...0x7A).contains(byte | 0x20)
      }
    guard isWord, !prefix.lowercased().hasPrefix("sqlite_") else {
      throw SQLiteError(
        .invalidArgument,
        url,
        "'\(prefix)' is not a valid prefix for the names of tables; use 1 to 40 ASCII letters, "
          + "digits and underscores, starting with a letter"
      )
    }
  }

  var closedError: SQLiteError {
    SQLiteError(.closed, url, "the store in \(path) was closed; make a new store")
  }

  var displacedError: SQLiteError {
    SQLiteError(
      .displaced,
      url,
      "\(path), or the log beside it, was deleted, moved or replaced while the store was open; "
        + "make a new store"
    )
  }

  /// Returns the error to throw to a caller.
  func errorForCaller(_ error: any Error) -> any Error {
    switch error {
    case let failure as SQLiteFailure: storeError(for: failure)
    case let refusal as Schema.Refusal: storeError(for: refusal)
    case let row as UnreadableRow:
      SQLiteError(
        .damaged,
        url,
        (row.id.map { "the row of the task \($0) in \(path) " } ?? "a row of \(path) ") + row.reason
          + ": a newer version wrote the row, or another program changed it. Update the package "
          + "Steadfast, or repair the row"
      )
    case let error as SystemCallError:
      SQLiteError(.cannotOpen, url, "\(path) can't be opened: \(error)")
    case is UnknownChange:
      SQLiteError(
        .refused,
        url,
        "the store in \(path) does not know this kind of change; use all modules of the package in "
          + "one version"
      )
    default: error
    }
  }

  /// Throws if the database file has several names (hard links).
  func checkForHardLinks() throws(SQLiteError) {
    do throws(FileLock.Refusal) {
      try FileLock.refuseOtherNames(ofStoreIn: path)
    } catch {
      throw storeError(for: error)
    }
  }

  func storeError(for refusal: FileLock.Refusal) -> SQLiteError {
    guard refusal.isHeld else { return SQLiteError(.cannotOpen, url, refusal.reason) }
    return SQLiteError(
      .inUse,
      url,
      "the tables \(prefix)_… of \(path) are in use: \(refusal.reason). Close that store first, or "
        + "give each store that uses them the argument 'sharing'"
    )
  }

  private func storeError(for refusal: Schema.Refusal) -> SQLiteError {
    switch refusal {
    case .newerVersion(let version):
      SQLiteError(
        .newerVersion,
        url,
        "the tables \(prefix)_… of \(path) were made by a newer version of Steadfast: they have "
          + "version \(version), and this package knows versions up to \(Schema().version). The "
          + "tables were not changed; update the package Steadfast"
      )
    case .foreignTable(let table):
      SQLiteError(
        .foreignTable,
        url,
        "\(path) has a table \(table) that was not made by Steadfast. The table was not changed; "
          + "choose another prefix for the tables"
      )
    }
  }

  private func storeError(for failure: SQLiteFailure) -> SQLiteError {
    switch failure.primaryCode {
    case SQLITE_CANTOPEN:
      SQLiteError(
        .cannotOpen,
        url,
        "\(path) can't be opened: \(failure.text); its folder must exist, and this user must be "
          + "allowed to make files in it"
      )
    case SQLITE_NOTADB:
      SQLiteError(
        .notADatabase,
        url,
        "\(path) is not a SQLite database, or is an encrypted one. It was not changed; choose "
          + "another file"
      )
    case SQLITE_CORRUPT:
      SQLiteError(
        .damaged,
        url,
        "\(path) is damaged: \(failure.text); restore a backup, or save what can be read with the "
          + "command .recover of the program sqlite3"
      )
    case SQLITE_READONLY, SQLITE_PERM:
      SQLiteError(
        .readOnly,
        url,
        "\(path) can't be written: \(failure.text); the file and its folder must be writable by "
          + "this user"
      )
    case SQLITE_BUSY, SQLITE_LOCKED:
      SQLiteError(
        .busy,
        url,
        "\(path) is busy: another program has blocked writes for 5 seconds. Repeat the call, as a "
          + "queue does"
      )
    case SQLITE_FULL:
      SQLiteError(
        .full,
        url,
        "the disk has no space for \(path) to grow. Nothing was stored; free some space"
      )
    default:
      SQLiteError(
        .refused,
        url,
        "SQLite refused an operation on \(path): \(failure.text) (code \(failure.code))"
      )
    }
  }
}

/// Checks for truncated files, which SQLite would treat as new databases.
extension DatabaseLocation {
  private static let magic = Array("SQLite format 3\0".utf8)
  private static let largestPage: UInt64 = 65_536

  private var realURL: URL { url.resolvingSymlinksInPath() }

  /// The path of the write-ahead log, which is beside the real file.
  var logPath: String { realURL.path + "-wal" }

  /// Whether the file doesn't exist; `false` if the system can't find out.
  var isMissing: Bool {
    do {
      return try FileIdentity.following(path) == nil
    } catch {
      return false
    }
  }

  /// Throws if the file is empty but has a log.
  ///
  /// An empty file is normal for a new database: SQLite creates it on opening, and writes to it
  /// later. But if the file has a log, it was truncated. SQLite would remove the log, and the
  /// stored changes with it.
  ///
  /// - Throws: A ``SQLiteError`` that names the log.
  func checkEmptyFile() throws(SQLiteError) {
    // Reads the log's size first: a process that creates a database writes to the file before it
    // writes to the log.
    guard (byteCount(ofFileAt: logPath) ?? 0) > 0, byteCount(ofFileAt: realURL.path) == 0 else {
      return
    }
    throw SQLiteError(
      .damaged,
      url,
      "\(path) was truncated: it is empty, but \(logPath) still has its changes. Neither file was "
        + "changed; restore a backup, or remove both files"
    )
  }

  /// Throws if the file is shorter than the first page of its database.
  ///
  /// SQLite reads the missing part of the first page as zeros, which mean that there are no tables.
  ///
  /// - Parameter database: A connection that has read nothing yet.
  /// - Throws: A ``SQLiteError`` that says how many bytes are left.
  func checkFirstPage(of database: Connection) throws(SQLiteError) {
    let file = realURL.path
    // A log, or the journal of an unfinished change, may contain the first page.
    let mayHavePage = [logPath, file + "-journal"].contains { (byteCount(ofFileAt: $0) ?? 0) > 0 }
    guard !mayHavePage, let count = byteCount(ofFileAt: file),
      (1..<Self.largestPage).contains(count), let bytes = database.firstBytes(18),
      bytes.starts(with: Self.magic), count < pageSize(inHeader: bytes)
    else { return }
    throw SQLiteError(
      .damaged,
      url,
      "\(path) was truncated: it has \(count) bytes, less than one page of a database. The file "
        + "was not changed; restore a backup"
    )
  }

  /// Returns the page size in the header of a database; at least the smallest valid size.
  private func pageSize(inHeader bytes: [UInt8]) -> UInt64 {
    let stored = UInt64(bytes[16]) << 8 | UInt64(bytes[17])
    return stored == 1 ? Self.largestPage : max(512, stored)
  }

  /// Returns the size of a regular file; `nil` if there is none.
  private func byteCount(ofFileAt path: String) -> UInt64? {
    let attributes = try? FileManager.default.attributesOfItem(atPath: path)
    guard attributes?[.type] as? FileAttributeType == .typeRegular else { return nil }
    return attributes?[.size] as? UInt64
  }
}

/// The file that the writer thread opened, and the lock that locks out other stores.
///
/// Another file may get the path of this file later, also after symbolic links are resolved.
final class StoreFile: Sendable {
  private struct State {
    var file: NamedFile?
    /// The write-ahead log and its index, which SQLite opened beside the file.
    var others: [NamedFile] = []
    var lock: FileLock?
  }

  /// A path, and the file that had the path when this value was created.
  private struct NamedFile {
    let path: String
    let file: FileIdentity?

    init(_ path: String) throws(SystemCallError) {
      self.path = path
      file = try FileIdentity.following(path)
    }

    /// Checks that the file still has the path.
    ///
    /// - Throws: A ``SQLiteError`` if another file has the path, or none.
    func checkFile(at location: DatabaseLocation) throws {
      guard try FileIdentity.following(path) == file else { throw location.displacedError }
    }
  }

  private let state = Mutex(State())

  /// Records the file that a connection opened.
  ///
  /// - Throws: A ``SQLiteError`` if the name already belongs to another file.
  func recordFile(of database: Connection, at location: DatabaseLocation) throws {
    let file = try NamedFile(database.path)
    guard file.file != nil, !database.hasMoved else { throw location.displacedError }
    let others = try ["-wal", "-shm"].map { try NamedFile(file.path + $0) }
    state.withLock { ($0.file, $0.others) = (file, others) }
  }

  /// Checks that the open files of a connection still have their paths.
  ///
  /// If another program deletes or replaces the log or its index, SQLite does not notice, and loses
  /// later changes.
  ///
  /// - Throws: A ``SQLiteError`` if one of the files was deleted, moved or replaced.
  func checkPaths(of database: Connection, at location: DatabaseLocation) throws {
    guard !database.hasMoved else { throw location.displacedError }
    for other in state.withLock({ $0.others }) { try other.checkFile(at: location) }
  }

  /// Opens the file for a reader thread.
  ///
  /// - Throws: A ``SQLiteError`` if the name of the file or of its log now belongs to another file.
  func openForReading(at location: DatabaseLocation) throws -> Connection {
    let (file, others) = state.withLock { ($0.file, $0.others) }
    guard let file else { throw location.displacedError }
    // If the log was deleted, a new connection would create another log.
    for other in others { try other.checkFile(at: location) }
    let database = Result { () throws(SQLiteFailure) in
      try Connection(file.path, .reading, prefix: location.prefix)
    }
    try file.checkFile(at: location)
    return try database.get()
  }

  /// The write-ahead log of the file; `nil` if none is open.
  var logPath: String? {
    state.withLock { $0.file.map { $0.path + "-wal" } }
  }

  // MARK: The lock

  func keepLock(_ lock: FileLock) { state.withLock { $0.lock = lock } }

  /// Removes and returns the lock; `nil` if there is none.
  ///
  /// The file is unlocked when the last reference to the lock is released.
  func takeLock() -> FileLock? {
    state.withLock { state in
      defer { state.lock = nil }
      return state.lock
    }
  }

  func releaseLock() { _ = takeLock() }
}
#endif
