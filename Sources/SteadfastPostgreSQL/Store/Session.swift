#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// A connection that is replaced when it is lost, with methods for transactions.
///
/// Only one thread uses a session.
///
/// Each session has a number. The session holds an advisory lock with that number, and each of its
/// transactions with changes writes one row with that number. If the connection breaks during a
/// commit, the next connection terminates the old one and waits until the lock is free. From then
/// on, the row shows reliably whether the transaction was stored.
final class Session {
  /// How long a call waits for an unavailable server before the call fails.
  ///
  /// Then the queue repeats the call: it knows who may wait, and for how long.
  private static let patience = DispatchTimeInterval.milliseconds(250)
  private static let mostCollisions = 100

  let location: DatabaseLocation
  let number = Int64.random(in: 1...Int64.max)
  /// Prepares each new connection before the session uses it.
  private let prepare: (Tables, _ isFirst: Bool) throws -> Void
  /// The number of the last transaction that has written a row.
  var requestNumber: Int64 = 0
  /// The number of the last transaction whose row is known to be stored.
  var storedRequestNumber: Int64 = 0
  var tables: Tables?
  /// The server process of the connection, which a pooler may replace.
  var backend: Int64 = 0
  private var hasConnected = false
  /// Whether the store's other sessions connect after this one.
  private let isFirst: Bool
  private let pauses = DispatchSemaphore(value: 0)

  /// Creates a session that connects when it is first used.
  ///
  /// - Parameters:
  ///   - location: The tables.
  ///   - isFirst: Whether the store's other sessions connect after this one.
  ///   - prepare: Prepares each new connection before the session uses it.
  init(
    _ location: DatabaseLocation,
    isFirst: Bool = false,
    prepare: @escaping (Tables, _ isFirst: Bool) throws -> Void
  ) {
    self.location = location
    self.isFirst = isFirst
    self.prepare = prepare
  }

  /// Ends the session so that another store can use the tables at once.
  func close() {
    // The server ends a session only some time after the connection closes.
    if let database = tables?.database, !database.isLost {
      _ = try? database.hasRow("select pg_advisory_unlock_all()")
    }
    tables = nil
  }

  // MARK: Connecting

  /// Returns the tables, and connects first if there is no connection.
  func openedTables() throws -> Tables {
    if let tables, !tables.database.isLost { return tables }
    self.tables = nil
    try location.checkArguments()
    let opened = try connect()
    try prepare(opened, !hasConnected)
    hasConnected = true
    tables = opened
    return opened
  }

  private func connect() throws -> Tables {
    var substitutions = Connection.Substitutions(prefix: location.prefix)
    if location.clockOffset != nil {
      substitutions.clock = "(clock_timestamp() + current_setting('steadfast.offset')::interval)"
    }
    let parameters = try location.connection.get().parameters
    let database: Connection
    do throws(PostgreSQLFailure) {
      database = try Connection(parameters, substitutions, location.stop)
    } catch {
      throw makingTransientIfPrimaryMayReturn(location.connectError(for: error))
    }
    do {
      try SessionSettings(location).apply(to: database)
    } catch let error as PostgreSQLError {
      throw makingTransientIfPrimaryMayReturn(error)
    }
    try setClock(of: database)
    try endEarlierSession(on: database)
    backend = try database.first("select pg_backend_pid()::bigint") { Int64($0.integer(0)) } ?? 0
    return Tables(database, isShared: location.isShared, locks: try lockNumbers(on: database))
  }

  /// Returns an error of an attempt to connect, made transient if a standby may become the primary.
  private func makingTransientIfPrimaryMayReturn(_ error: PostgreSQLError) -> PostgreSQLError {
    // There was a primary before, or the connection string names several hosts.
    let mayComeBack = hasConnected || !isFirst || location.hasSeveralHosts
    guard error.code == .readOnly, mayComeBack else { return error }
    return PostgreSQLError(.unreachable, error.message)
  }

  /// Terminates the server's session of the lost connection, and waits for the end of that session.
  private func endEarlierSession(on database: Connection) throws {
    if hasConnected {
      try database.send(
        """
        select pg_terminate_backend(pid) from pg_locks
        where locktype = 'advisory' and objsubid = 1 and pid <> pg_backend_pid()
          and database = (select oid from pg_database where datname = current_database())
          and classid = $1::bigint::oid and objid = $2::bigint::oid
        """,
        .integer(number >> 32),
        .integer(number & 0xFFFF_FFFF)
      )
    }
    try database.send("select pg_advisory_lock($1)", .integer(number))
    try database.flush()
  }

  private func lockNumbers(on database: Connection) throws -> Tables.Locks {
    let found = try database.first(
      """
      select hashtext('orders ' || current_schema() || '.' || $1)::bigint,
        hashtext('values ' || current_schema() || '.' || $1)::bigint,
        hashtext('keys ' || current_schema() || '.' || $1)::bigint
      """,
      .text(location.prefix)
    ) { row in
      Tables.Locks(
        orders: Int64(row.integer(0)),
        values: Int64(row.integer(1)),
        keys: Int64(row.integer(2))
      )
    }
    return found ?? Tables.Locks()
  }

  /// Performs a look-up, and repeats the look-up if the connection is lost.
  func lookUp<Success>(_ body: (Connection) throws -> Success) throws -> Success {
    try retrying { tables in try body(tables.database) }
  }

  // MARK: Transactions

  /// Makes the changes of `body` in a transaction.
  ///
  /// This retries the transaction if it collides with another one, or if the connection is lost. If
  /// the connection is lost during the commit, a repeatable transaction is always retried, even if
  /// it was stored.
  func transaction<Success>(
    isDurable: Bool,
    isRepeatable: Bool = false,
    _ body: (Tables) throws -> Success
  ) throws -> Success {
    try retrying { tables in
      tables.hasChanged = false
      tables.hasFreedOthers = false
      let success: Success
      do {
        try begin(tables.database, isDurable: isDurable)
        success = try body(tables)
      } catch {
        rollBack(on: tables.database)
        throw error
      }
      try commit(tables, isExplicit: true, isRepeatable: isRepeatable)
      return success
    }
  }

  /// Makes the changes of `body` in a transaction that costs one round trip.
  ///
  /// `body` must only send statements. The server performs statements that arrive together in one
  /// transaction, which needs no `begin` and no `commit`.
  ///
  /// Retries like ``transaction(isDurable:isRepeatable:_:)``. With `isRepeatable`, the transaction
  /// may have been stored already when `body` is called again.
  ///
  /// - Returns: The results that `body` needs.
  func transactionInOneRoundTrip(
    isDurable: Bool,
    isRepeatable: Bool = false,
    _ body: (Tables) throws -> Void
  ) throws -> [Rows] {
    try retrying { tables in
      tables.hasChanged = false
      tables.hasFreedOthers = false
      do {
        try setClock(of: tables.database)
        if !isDurable {
          try tables.database.send("select set_config('synchronous_commit', 'off', true)")
        }
        try body(tables)
      } catch {
        // The server would commit the statements that were sent. Without a connection, it doesn't.
        self.tables = nil
        throw error
      }
      return try commit(tables, isExplicit: false, isRepeatable: isRepeatable)
    }
  }

  private func begin(_ database: Connection, isDurable: Bool) throws(PostgreSQLFailure) {
    try setClock(of: database)
    try database.send("begin")
    if !isDurable { try database.send("set local synchronous_commit = off") }
  }

  private func setClock(of database: Connection) throws(PostgreSQLFailure) {
    guard let offset = location.clockOffset else { return }
    // The text of an interval can't have an exponent.
    let (seconds, microseconds) = offset().microseconds.quotientAndRemainder(dividingBy: 1_000_000)
    let text = "\(seconds) s \(microseconds) us"
    try database.send("select set_config('steadfast.offset', $1, false)", .text(text))
  }

  /// Rolls back the transaction in progress.
  func rollBack(on database: Connection) {
    guard !database.isLost else { return }
    // Ignores errors of sent statements, because the transaction is rolled back anyway.
    _ = try? database.flush()
    do { try database.execute("rollback") } catch { tables = nil }
  }

  // MARK: Retrying

  /// Calls `body`, and calls it again after a collision or a lost connection.
  ///
  /// This tries a new connection at least once, however late it learns that the old one is lost. If
  /// `patience` is `nil`, it waits for an unavailable server without a limit, and also if `body`
  /// waited too long for a lock. When the queue or the store ends, it stops waiting.
  func retrying<Success>(
    for patience: DispatchTimeInterval? = patience,
    _ body: (Tables) throws -> Success
  ) throws -> Success {
    let end = patience.map { DispatchTime.now() + $0 }
    var hasWaited = false
    func mayWait() -> Bool {
      defer { hasWaited = true }
      let isEnding = location.stop.isSet || location.close.isSet
      return !hasWaited || !isEnding && end.map { DispatchTime.now() < $0 } ?? true
    }
    var collisions = 0
    var pause = 10
    while true {
      do {
        return try body(openedTables())
      } catch let failure as PostgreSQLFailure {
        if failure.isConnectionLost || failure.isReadOnly {
          tables = nil
          guard mayWait() else { throw failure }
          wait(milliseconds: pause)
          pause = min(pause * 2, 500)
        } else if patience == nil, failure.state == "55P03", mayWait() {
          wait(milliseconds: pause)
        } else {
          guard failure.isCollision, collisions < Self.mostCollisions else { throw failure }
          collisions += 1
          wait(milliseconds: Int.random(in: 0...min(collisions, 20)))
        }
      } catch let error as PostgreSQLError where error.code == .unreachable {
        guard mayWait(), hasConnected || !error.isProbablyLasting else { throw error }
        wait(milliseconds: pause)
        pause = min(pause * 2, 500)
      }
    }
  }

  /// Blocks the thread before another try.
  func wait(milliseconds: Int) {
    _ = pauses.wait(timeout: .now() + .milliseconds(milliseconds))
  }
}

/// Commits whose outcome can be looked up if the response is lost.
extension Session {
  /// Commits a transaction and, if there are changes, writes the row that proves the commit.
  ///
  /// The row replaces the previous row, which is found by its number. A search by session alone
  /// would also read all earlier rows that some transaction can still see.
  ///
  /// The row can be written only on the session that holds the lock. With a pooler that gives each
  /// transaction another session, the row would prove nothing.
  ///
  /// - Parameters:
  ///   - tables: The tables.
  ///   - isExplicit: Whether the transaction has begun with a statement. If not, the server commits
  ///     all statements that arrive together.
  ///   - isRepeatable: Whether the transaction may be repeated even if it was stored.
  /// - Returns: The results that the statements sent so far need; none if the response was lost.
  /// - Throws: The failure of a statement or of the commit, or
  ///   ``PostgreSQLError/Code/outcomeUnknown``.
  @discardableResult
  func commit(_ tables: Tables, isExplicit: Bool, isRepeatable: Bool) throws -> [Rows] {
    let database = tables.database
    do throws(PostgreSQLFailure) {
      if tables.hasChanged {
        requestNumber += 1
        // If a pooler has changed the session, the number is null, which the column refuses.
        try database.send(
          """
          with earlier as (
            delete from steadfast_request where session = $1 and number = $4)
          insert into steadfast_request
          values ($1, case when pg_backend_pid() = $3::bigint then $2::bigint end, now())
          """,
          .integer(number),
          .integer(requestNumber),
          .integer(backend),
          .integer(storedRequestNumber)
        )
      }
      if isExplicit { try database.send("commit") }
      let results = try database.flush()
      if tables.hasChanged { storedRequestNumber = requestNumber }
      return results
    } catch  where error.isConnectionLost {
      guard !isRepeatable, try wasLastTransactionStored(hasNoRow: !tables.hasChanged) else {
        throw error
      }
      if tables.hasChanged { storedRequestNumber = requestNumber }
      return []
    } catch {
      if isExplicit { rollBack(on: database) }
      throw error.state == "23502" ? location.pooledSessionError(because: error.reason) : error
    }
  }

  /// Returns whether the last transaction was stored, as the row of that transaction shows.
  ///
  /// A transaction without changes has no row, and counts as stored. While the server is
  /// unavailable, this waits: without the answer, the queue can't go on.
  ///
  /// - Throws: ``PostgreSQLError/Code/outcomeUnknown`` if the row can't be read.
  private func wasLastTransactionStored(hasNoRow: Bool) throws(PostgreSQLError) -> Bool {
    guard !hasNoRow else { return true }
    tables = nil
    do {
      return try retrying(for: nil) { tables in
        // The row may exist before the standbys have it. The commit of this update waits for the
        // standbys.
        try tables.database.run(
          "update steadfast_request set date = now() where session = $1 and number = $2",
          .integer(number),
          .integer(requestNumber)
        ) > 0
      }
    } catch {
      let reason =
        switch error {
        case let failure as PostgreSQLFailure: failure.reason
        case let error as PostgreSQLError: error.message
        default: "\(error)"
        }
      throw PostgreSQLError(
        .outcomeUnknown,
        "the connection to \(location.name) was lost while a change was being stored, and the store "
          + "can't find out whether the change was stored: \(reason)"
      )
    }
  }
}

/// The settings of each connection, and the requirements for its server.
struct SessionSettings {
  private let location: DatabaseLocation

  init(_ location: DatabaseLocation) { self.location = location }

  /// The statements that apply the settings.
  ///
  /// With these settings, the plans of statements do not depend on the size of the tables at the
  /// time of planning. Otherwise, a plan for an empty table would read a whole table later.
  ///
  /// Time-outs on both sides end sessions that hang, and statements for which the application set
  /// no limit. The server ends the session of an unreachable machine, with its locks, within a
  /// minute. The server does not end an idle session, whose locks lock out other stores. Before
  /// version 14, the server has no setting for idle sessions.
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

  /// How much longer a connection waits for a response than a statement may take, in milliseconds.
  private static let margin = 30_000

  /// Applies the settings to a connection.
  ///
  /// The connection then waits longer for a response than a statement may take. If the connection
  /// stopped waiting before the server ended a statement, that statement would be retried again and
  /// again.
  func apply(to database: Connection) throws {
    try check(version: database.serverVersion)
    try database.execute(Self.script)
    try sendSearchPath(to: database)
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
        "\(location.name) has the encoding \(found.encoding), which can't store all characters; "
          + "create a database with the encoding UTF8"
      )
    }
    guard found.hasSchema else {
      throw PostgreSQLError(
        .noSchema,
        "\(location.name) has no schema \(location.schema ?? "public") that this user may use; create "
          + "the schema, and grant usage on the schema to this user"
      )
    }
    guard !found.isReadOnly else { throw location.readOnlyError }
  }

  /// Makes names without a schema refer to the store's schema, and never to another user's schema.
  private func sendSearchPath(to database: Connection) throws(PostgreSQLFailure) {
    try database.send(
      """
      select set_config('search_path',
        quote_ident(coalesce($1::text, current_schema(), 'public')), false)
      """,
      .text(location.schema)
    )
  }

  /// Throws if the server is too old; the version is a number such as 150018 for 15.18.
  func check(version: Int) throws(PostgreSQLError) {
    guard version / 10_000 < DatabaseLocation.oldestServer else { return }
    throw PostgreSQLError(
      .unsuitableServer,
      "the server of \(location.name) is PostgreSQL \(version / 10_000); the store needs version "
        + "\(DatabaseLocation.oldestServer) or newer"
    )
  }
}
#endif
