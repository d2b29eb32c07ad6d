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

  let place: StorePlace
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
    _ place: StorePlace,
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
#endif
