#if SQLite
/// What the library says about a call that has failed.
struct SQLiteFailure: Error, Equatable {
  /// The extended result code.
  let code: Int32
  let text: String

  /// The result code without what extends it.
  var primaryCode: Int32 { code & 0xFF }
}
#endif
