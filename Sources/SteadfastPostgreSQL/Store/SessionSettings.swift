#if PostgreSQL
/// What each connection is set to, and what its server must be.
struct SessionSettings {
  private let place: StorePlace

  init(_ place: StorePlace) { self.place = place }

  /// Statements have plans that do not depend on how full the tables were when they were made.
  ///
  /// A plan for empty tables would read all of a full one. The time-outs end a session that hangs
  /// on both sides, and statements for which the application has set no limit of its own. The
  /// server ends the session of a machine that is gone, with its locks, within a minute. It does
  /// not end one that has nothing to do, whose locks keep other stores out; before version 14, it
  /// has no such setting.
  private static let script = """
    set client_min_messages = error;
    set default_transaction_isolation = 'read committed';
    set default_transaction_deferrable = off;
    set plan_cache_mode = force_generic_plan;
    set enable_seqscan = off;
    set enable_bitmapscan = off;
    set jit = off;
    set lock_timeout = '10s';
    set idle_in_transaction_session_timeout = '60s';
    set tcp_keepalives_idle = 30;
    set tcp_keepalives_interval = 10;
    set tcp_keepalives_count = 3;
    set tcp_user_timeout = 30000;
    select set_config('statement_timeout', '30s', false)
    where current_setting('statement_timeout') = '0';
    select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout';
    """

  /// How many milliseconds longer an answer is waited for than the server lets a statement take.
  private static let margin = 30_000

  /// Sets a connection, which then waits longer for an answer than a statement may take.
  ///
  /// A statement that was given up before the server ends it would be made again and again.
  func apply(to database: Connection) throws {
    try check(version: database.serverVersion)
    try database.execute(Self.script)
    try sendPath(to: database)
    let found = try database.first(
      """
      select current_schema() is not null, current_setting('server_encoding'),
        pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
        (select setting::bigint from pg_settings where name = 'statement_timeout')
      """
    ) { row in
      (
        hasSchema: row.flag(0), encoding: row.text(1), isReadOnly: row.flag(2),
        timeLimit: row.integer(3)
      )
    }
    guard let found else { return }
    database.patience = max(database.patience, Int32(clamping: found.timeLimit + Self.margin))
    guard found.encoding == "UTF8" else {
      throw PostgreSQLError(
        .unsuitableServer,
        "\(place.name) has the encoding \(found.encoding), which does not hold all characters; "
          + "make one with the encoding UTF8"
      )
    }
    guard found.hasSchema else {
      throw PostgreSQLError(
        .noSchema,
        "\(place.name) has no schema \(place.schema ?? "public") that this user may use; make it "
          + "with create schema, and grant usage on it"
      )
    }
    guard !found.isReadOnly else { throw place.readOnly }
  }

  /// Lets names without a schema mean those of the store's own, and never those of another user.
  private func sendPath(to database: Connection) throws(PostgreSQLFailure) {
    try database.send(
      """
      select set_config('search_path',
        quote_ident(coalesce($1::text, current_schema(), 'public')), false)
      """,
      .text(place.schema)
    )
  }

  /// Throws if the server is too old; the version is a number such as 150018 for 15.18.
  func check(version: Int) throws(PostgreSQLError) {
    guard version / 10_000 < StorePlace.oldestServer else { return }
    throw PostgreSQLError(
      .unsuitableServer,
      "the server of \(place.name) is PostgreSQL \(version / 10_000); the store needs version "
        + "\(StorePlace.oldestServer) or newer"
    )
  }
}
#endif
