#if SQLite
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import SteadfastQueue

/// A file that lost its end, which SQLite takes for a new database.
extension StorePlace {
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
#endif
