#if SQLite
import SystemSQLite

/// The system's SQLite library.
enum Library {
  /// The oldest version whose statements the store can use, which is of November 2021.
  private static let oldest: Int32 = 3_037_000

  static func check(_ place: StorePlace) throws(SQLiteError) {
    let version = sqlite3_libversion_number()
    guard version < oldest || sqlite3_threadsafe() == 0 else { return }
    throw SQLiteError(
      .unsuitableLibrary,
      place.url,
      "the store needs SQLite 3.37 or newer that was built for threads; the system has version "
        + "\(version / 1_000_000).\(version / 1_000 % 1_000)"
    )
  }
}
#endif
