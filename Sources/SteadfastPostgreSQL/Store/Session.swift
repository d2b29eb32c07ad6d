#if PostgreSQL
import Dispatch
import SteadfastQueue

/// A connection that is made again when it is lost, and the transactions on it; one thread uses it.
///
/// The session has a number of its own. It holds an advisory lock of that number, and writes one
/// row under it in each transaction that changes something. If a connection breaks while a
/// transaction is being committed, the next connection ends the old one and waits until its lock is
/// free: from then on, the row says for good whether the transaction was stored.
final class Session {
  /// How long the server may be away before a call fails.
  private static let patience = DispatchTimeInterval.seconds(2)
  /// How long the server may be away before a call fails whose outcome is not known.
  static let longPatience = DispatchTimeInterval.seconds(60)
  private static let mostCollisions = 100

  let place: DatabaseLocation
  let number = Int64.random(in: 1...Int64.max)
  /// What the first connection and each later one is asked before it is used.
  private let prepare: (Tables, _ isFirst: Bool) throws -> Void
  /// The number of the last transaction that has written a row.
  var requestNumber: Int64 = 0
  /// The number of the last transaction whose row was stored, as far as is known.
  var storedRequestNumber: Int64 = 0
  var tables: Tables?
  /// The server's process of the connection, which a pooler may take away.
  var backend: Int64 = 0
  private var hasConnected = false
  /// Whether the store's other sessions connect after this one.
  private let isFirst: Bool
  private let pauses = DispatchSemaphore(value: 0)

  /// Makes a session that connects when it is used.
  ///
  /// - Parameters:
  ///   - place: The tables.
  ///   - isFirst: Whether the store's other sessions connect after this one.
  ///   - prepare: What each new connection is asked.
  init(
    _ place: DatabaseLocation,
    isFirst: Bool = false,
    prepare: @escaping (Tables, _ isFirst: Bool) throws -> Void
  ) {
    self.place = place
    self.isFirst = isFirst
    self.prepare = prepare
  }

  /// Ends the session, in such a way that another store may use the tables at once.
  func close() {
    // The server ends a session only some time after its connection was closed.
    if let database = tables?.database, !database.isLost {
      _ = try? database.has("select pg_advisory_unlock_all()")
    }
    tables = nil
  }

  // MARK: Connecting

  /// The tables, on a connection that works as far as is known.
  func openedTables() throws -> Tables {
    if let tables, !tables.database.isLost { return tables }
    self.tables = nil
    try place.check()
    let opened = try connect()
    try prepare(opened, !hasConnected)
    hasConnected = true
    tables = opened
    return opened
  }

  private func connect() throws -> Tables {
    var wording = Connection.Wording(prefix: place.prefix)
    if place.clockOffset != nil {
      wording.clock = "(clock_timestamp() + current_setting('steadfast.offset')::interval)"
    }
    let parameters = try place.connection.get().parameters
    let database: Connection
    do throws(PostgreSQLFailure) {
      database = try Connection(parameters, wording)
    } catch {
      throw awaitingPrimary(place.describedAttempt(error))
    }
    do {
      try SessionSettings(place).apply(to: database)
    } catch let error as PostgreSQLError {
      throw awaitingPrimary(error)
    }
    try setClock(of: database)
    try endEarlierSession(on: database)
    backend = try database.first("select pg_backend_pid()::bigint") { Int64($0.integer(0)) } ?? 0
    return Tables(database, isShared: place.isShared, locks: try lockNumbers(on: database))
  }

  /// The error of an attempt to connect, which is made again if a standby may become the primary.
  private func awaitingPrimary(_ error: PostgreSQLError) -> PostgreSQLError {
    // There was a primary, or the program says that one host may take the place of another.
    let mayComeBack = hasConnected || !isFirst || place.hasSeveralHosts
    guard error.code == .readOnly, mayComeBack else { return error }
    return PostgreSQLError(.unreachable, error.message)
  }

  /// Ends what is left of the connection that was lost, and waits until it is gone.
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
      .text(place.prefix)
    ) { row in
      Tables.Locks(
        orders: Int64(row.integer(0)),
        values: Int64(row.integer(1)),
        keys: Int64(row.integer(2))
      )
    }
    return found ?? Tables.Locks()
  }

  /// Makes a look-up, again if the connection is lost.
  func look<Success>(_ body: (Connection) throws -> Success) throws -> Success {
    try retrying { tables in try body(tables.database) }
  }

  // MARK: Transactions

  /// Makes the changes of `body` in a transaction, again if it has collided with another one or the
  /// connection is lost.
  ///
  /// A repeatable transaction is made again if the connection is lost at its end, whether it was
  /// stored or not.
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
        undo(on: tables.database)
        throw error
      }
      try commit(tables, isRepeatable: isRepeatable)
      return success
    }
  }

  /// Sends the changes of `body` along with the commit, so that the transaction costs one round
  /// trip; again if it has collided with another one or the connection is lost.
  ///
  /// A transaction whose connection was lost at its end may have been stored: `body` has to undo
  /// that when it is called again.
  ///
  /// - Returns: The results that `body` wants.
  func transactionAtOnce(_ body: (Tables) throws -> Void) throws -> [Rows] {
    try retrying { tables in
      do {
        try begin(tables.database, isDurable: false)
        try body(tables)
        try tables.database.send("commit")
        return try tables.database.flush()
      } catch {
        undo(on: tables.database)
        throw error
      }
    }
  }

  private func begin(_ database: Connection, isDurable: Bool) throws(PostgreSQLFailure) {
    try setClock(of: database)
    try database.send("begin")
    if !isDurable { try database.send("set local synchronous_commit = off") }
  }

  private func setClock(of database: Connection) throws(PostgreSQLFailure) {
    guard let offset = place.clockOffset else { return }
    // An interval of text has no exponent.
    let (seconds, microseconds) = offset().microseconds.quotientAndRemainder(dividingBy: 1_000_000)
    let text = "\(seconds) s \(microseconds) us"
    try database.send("select set_config('steadfast.offset', $1, false)", .text(text))
  }

  func undo(on database: Connection) {
    guard !database.isLost else { return }
    // What was sent, and failed, is forgotten along with the transaction.
    _ = try? database.flush()
    do { try database.execute("rollback") } catch { tables = nil }
  }

  // MARK: Retrying

  func retrying<Success>(
    for patience: DispatchTimeInterval = patience,
    waitsForLocks: Bool = false,
    _ body: (Tables) throws -> Success
  ) throws -> Success {
    let end = DispatchTime.now() + patience
    var collisions = 0
    var pause = 10
    while true {
      do {
        return try body(openedTables())
      } catch let failure as PostgreSQLFailure {
        if failure.isConnectionLost || failure.isReadOnly {
          tables = nil
          guard DispatchTime.now() < end else { throw failure }
          wait(milliseconds: pause)
          pause = min(pause * 2, 500)
        } else if waitsForLocks, failure.state == "55P03", DispatchTime.now() < end {
          wait(milliseconds: pause)
        } else {
          guard failure.isCollision, collisions < Self.mostCollisions else { throw failure }
          collisions += 1
          wait(milliseconds: Int.random(in: 0...min(collisions, 20)))
        }
      } catch let error as PostgreSQLError where error.code == .unreachable {
        guard DispatchTime.now() < end else { throw error }
        wait(milliseconds: pause)
        pause = min(pause * 2, 500)
      }
    }
  }

  private func wait(milliseconds: Int) {
    _ = pauses.wait(timeout: .now() + .milliseconds(milliseconds))
  }
}

/// Commits whose outcome can be looked up if the answer is lost.
extension Session {
  /// Commits a transaction, with the row that says so if it has changed something.
  ///
  /// The row takes the place of the one before, which is named by its number: all that were there
  /// while some transaction can see them stand under the session in the index.
  ///
  /// The row can be written only on the session that holds the lock: with a pooler that gives each
  /// transaction another session, it would prove nothing.
  func commit(_ tables: Tables, isRepeatable: Bool) throws {
    let database = tables.database
    do throws(PostgreSQLFailure) {
      if tables.hasChanged {
        requestNumber += 1
        // On another session the value is null, which the column refuses.
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
      try database.send("commit")
      try database.flush()
      if tables.hasChanged { storedRequestNumber = requestNumber }
    } catch  where error.isConnectionLost {
      guard !isRepeatable, try wasStored(unless: !tables.hasChanged) else { throw error }
      if tables.hasChanged { storedRequestNumber = requestNumber }
    } catch {
      undo(on: database)
      throw error.state == "23502" ? place.sharesSessions(error.reason) : error
    }
  }

  /// Whether the last transaction was stored, by the row that it has written.
  ///
  /// A transaction that has changed nothing counts as stored.
  ///
  /// - Throws: ``PostgreSQLError/Code/outcomeUnknown`` if the row can't be read.
  private func wasStored(unless hasNoRow: Bool) throws(PostgreSQLError) -> Bool {
    guard !hasNoRow else { return true }
    tables = nil
    do {
      return try retrying(for: Self.longPatience, waitsForLocks: true) { tables in
        // The row may be there before standbys have it. Another commit waits until they do.
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
        "the connection to \(place.name) was lost while a change was being stored, and whether it "
          + "was stored can't be found out: \(reason)"
      )
    }
  }
}

/// What each connection is set to, and what its server must be.
struct SessionSettings {
  private let place: DatabaseLocation

  init(_ place: DatabaseLocation) { self.place = place }

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
    guard version / 10_000 < DatabaseLocation.oldestServer else { return }
    throw PostgreSQLError(
      .unsuitableServer,
      "the server of \(place.name) is PostgreSQL \(version / 10_000); the store needs version "
        + "\(DatabaseLocation.oldestServer) or newer"
    )
  }
}
#endif
