#if SQLite
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import SystemSQLite

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Where the tables are, and the errors that name it.
struct DatabaseLocation: Sendable {
  let url: URL
  /// The word with which the names of the tables begin.
  let prefix: String

  var path: String { url.path }

  /// Throws if no database can be there.
  func check() throws(SQLiteError) {
    guard url.isFileURL, !path.isEmpty, !path.utf8.contains(0) else {
      throw SQLiteError(.invalidArgument, url, "\(url) names no file; give a file URL")
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
        "'\(prefix)' can't begin the names of tables; give a word of 1 to 40 letters of ASCII, "
          + "digits and underscores that begins with a letter"
      )
    }
  }

  var closed: SQLiteError {
    SQLiteError(.closed, url, "the store in \(path) was closed; make a new one")
  }

  var displaced: SQLiteError {
    SQLiteError(
      .displaced,
      url,
      "\(path), or its log beside it, was deleted, moved or replaced while it was open; make a new "
        + "store"
    )
  }

  /// The error for a caller.
  func error(_ error: any Error) -> any Error {
    switch error {
    case let failure as SQLiteFailure: described(failure)
    case let refusal as Schema.Refusal: described(refusal)
    case let row as UnreadableRow:
      SQLiteError(
        .damaged,
        url,
        (row.id.map { "the row of the task \($0) in \(path) " } ?? "a row of \(path) ") + row.reason
          + "; it was written by a newer one, or changed by another program"
      )
    case let error as SystemCallError:
      SQLiteError(.cannotOpen, url, "\(path) can't be opened: \(error)")
    case is UnknownChange:
      SQLiteError(.refused, url, "the store in \(path) does not know a kind of change")
    default: error
    }
  }

  /// Throws if the database that is there has several real names.
  func checkNames() throws(SQLiteError) {
    do throws(FileLock.Refusal) {
      try FileLock.refuseOtherNames(ofStoreIn: path)
    } catch {
      throw described(error)
    }
  }

  func described(_ refusal: FileLock.Refusal) -> SQLiteError {
    guard refusal.isHeld else { return SQLiteError(.cannotOpen, url, refusal.reason) }
    return SQLiteError(
      .inUse,
      url,
      "the tables \(prefix)_… of \(path) are in use: \(refusal.reason). Close that store first, or "
        + "give each store that uses them the argument 'sharing'"
    )
  }

  private func described(_ refusal: Schema.Refusal) -> SQLiteError {
    switch refusal {
    case .newerVersion(let version):
      SQLiteError(
        .newerVersion,
        url,
        "the tables \(prefix)_… of \(path) were made by a newer version of Steadfast: they have "
          + "version \(version), and this one knows up to \(Schema().version). They were not changed; "
          + "update the package Steadfast"
      )
    case .foreignTable(let table):
      SQLiteError(
        .foreignTable,
        url,
        "\(path) has a table \(table) that was not made by Steadfast. It was not changed; choose "
          + "another prefix for the tables"
      )
    }
  }

  private func described(_ failure: SQLiteFailure) -> SQLiteError {
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
        "\(path) is no SQLite database, or is an encrypted one. It was not changed; choose another "
          + "file"
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
        "\(path) is busy: another program has kept it from being used for 5 seconds"
      )
    case SQLITE_FULL:
      SQLiteError(
        .full,
        url,
        "there is no room for \(path) to grow. Nothing was stored; make room on its disk"
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

/// A file that lost its end, which SQLite takes for a new database.
extension DatabaseLocation {
  private static let magic = Array("SQLite format 3\0".utf8)
  private static let largestPage: UInt64 = 65_536

  private var realURL: URL { url.resolvingSymlinksInPath() }

  /// The write-ahead log, which stands beside the file itself.
  var logPath: String { realURL.path + "-wal" }

  /// Whether no file is there; `false` if the system does not tell.
  var isMissing: Bool {
    do {
      return try FileIdentity.following(path) == nil
    } catch {
      return false
    }
  }

  /// Throws if the file was cut, and what is left of it would be taken for a new database.
  ///
  /// A file that is empty is new: SQLite makes such a file when it opens a database, and writes it
  /// later. But if it has a log, SQLite removes that, and with it what was stored.
  /// - Throws: a ``SQLiteError`` that names the log.
  func checkEmptyFile() throws(SQLiteError) {
    // Another process that makes the database writes the log later than the file.
    guard (byteCount(logPath) ?? 0) > 0, byteCount(realURL.path) == 0 else { return }
    throw SQLiteError(
      .damaged,
      url,
      "\(path) was cut: it is empty, but \(logPath) has what was stored in it. Neither was changed; "
        + "restore a backup, or remove both"
    )
  }

  /// Throws if the file is shorter than the first page of its database.
  ///
  /// SQLite reads what is missing of the first page as zeros, which say that there are no tables.
  /// - Parameter database: a connection that has read nothing yet.
  /// - Throws: a ``SQLiteError`` that says how many bytes are left.
  func checkFirstPage(_ database: Connection) throws(SQLiteError) {
    let file = realURL.path
    // A log, or the journal of a change that was not finished, may have the first page.
    let mayHavePage = [logPath, file + "-journal"].contains { (byteCount($0) ?? 0) > 0 }
    guard !mayHavePage, let count = byteCount(file), (1..<Self.largestPage).contains(count),
      let bytes = database.firstBytes(18), bytes.starts(with: Self.magic),
      count < pageSize(bytes)
    else { return }
    throw SQLiteError(
      .damaged,
      url,
      "\(path) was cut: it has \(count) bytes, and no whole page of a database. It was not "
        + "changed; restore a backup"
    )
  }

  /// The size of the pages of a database, as its beginning says; by default the smallest one.
  private func pageSize(_ bytes: [UInt8]) -> UInt64 {
    let stored = UInt64(bytes[16]) << 8 | UInt64(bytes[17])
    return stored == 1 ? Self.largestPage : max(512, stored)
  }

  /// The size of a plain file; `nil` if there is none.
  private func byteCount(_ path: String) -> UInt64? {
    let attributes = try? FileManager.default.attributesOfItem(atPath: path)
    guard attributes?[.type] as? FileAttributeType == .typeRegular else { return nil }
    return attributes?[.size] as? UInt64
  }
}

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
  func note(_ database: Connection, _ place: DatabaseLocation) throws {
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
  func check(_ database: Connection, _ place: DatabaseLocation) throws {
    let (path, others) = state.withLock { ($0.path, $0.others) }
    guard !database.hasMoved, try Self.others(beside: path) == others else {
      throw place.displaced
    }
  }

  /// Opens the file for a thread that reads.
  ///
  /// - Throws: A ``SQLiteError`` if another file has its name or that of its log by now.
  func openedForReading(_ place: DatabaseLocation) throws -> Connection {
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
