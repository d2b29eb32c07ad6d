#if PostgreSQL
extension StorePlace {
  /// Keeps other stores out for as long as the connection lasts, except shared ones if this one is
  /// shared too.
  ///
  /// It waits for a session that is just ending, since a process was killed.
  ///
  /// - Throws: ``PostgreSQLError/Code/inUse`` if a store is open that uses the tables in another
  ///   way.
  func use(on database: Connection) throws {
    let function = isShared ? "pg_advisory_lock_shared" : "pg_advisory_lock"
    do throws(PostgreSQLFailure) {
      try database.send("set lock_timeout = '2s'")
      try database.send(
        "select \(function)(hashtextextended(current_schema() || '.' || $1, 1))",
        .text(prefix)
      )
      try database.send("set lock_timeout = '10s'")
      try database.flush()
    } catch {
      guard error.state == "55P03" else { throw error }
      throw PostgreSQLError(
        .inUse,
        "\(tables) are in use by another store, and only stores with the argument 'sharing' "
          + "use them at the same time. Close that store first, or give both the argument"
      )
    }
  }
}
#endif
