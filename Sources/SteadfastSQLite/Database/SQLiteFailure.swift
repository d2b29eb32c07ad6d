#if SQLite
import SystemSQLite

/// What the library says about a call that has failed.
struct SQLiteFailure: Error, Equatable {
  /// The extended result code.
  let code: Int32
  let text: String

  /// The result code without what extends it.
  var primaryCode: Int32 { code & 0xFF }

  /// Whether a statement names a table or a column that is not there.
  var namesWhatIsMissing: Bool {
    primaryCode == SQLITE_ERROR
      && (text.hasPrefix("no such table") || text.hasPrefix("no such column"))
  }
}
#endif
