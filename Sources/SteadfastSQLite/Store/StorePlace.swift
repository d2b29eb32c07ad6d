#if SQLite
import SystemSQLite
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Where the tables are, and the errors that name it.
struct StorePlace: Sendable {
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
#endif
