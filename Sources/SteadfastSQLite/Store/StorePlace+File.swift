#if SQLite
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A file that lost its end, which SQLite takes for a new database.
extension StorePlace {
  private static let magic = Array("SQLite format 3\0".utf8)
  private static let largestPage = 65_536

  private var realURL: URL { url.resolvingSymlinksInPath() }

  /// The write-ahead log, which stands beside the file itself.
  var logPath: String { realURL.path + "-wal" }

  /// Throws if the file is the beginning of a database that was cut.
  ///
  /// SQLite reads what is missing of the first page as zeros, which say that there are no tables. A
  /// file that is empty is new: SQLite makes such a file when it opens a database, and writes it
  /// later. But if it has a log, SQLite removes that, and with it what was stored.
  func checkFile() throws(SQLiteError) {
    let (file, log) = (realURL, logPath)
    guard let count = byteCount(file.path) else { return }
    if count == 0 {
      guard (byteCount(log) ?? 0) > 0 else { return }
      throw SQLiteError(
        .damaged,
        url,
        "\(path) was cut: it is empty, but \(log) has what was stored in it. Neither was changed; "
          + "restore a backup, or remove both"
      )
    }
    // A log, or the journal of a change that was not finished, may have the first page.
    let mayHavePage = [log, file.path + "-journal"].contains { (byteCount($0) ?? 0) > 0 }
    guard count < Self.largestPage, !mayHavePage, let bytes = try? Data(contentsOf: file),
      bytes.starts(with: Self.magic), bytes.count < pageSize(bytes)
    else { return }
    throw SQLiteError(
      .damaged,
      url,
      "\(path) was cut: it has \(bytes.count) bytes, and no whole page of a database. It was not "
        + "changed; restore a backup"
    )
  }

  /// The size of the pages of a database, as its beginning says; by default the smallest one.
  private func pageSize(_ bytes: Data) -> Int {
    let stored = bytes.prefix(18).suffix(2).reduce(0) { $0 << 8 | Int($1) }
    guard bytes.count >= 18 else { return 512 }
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
