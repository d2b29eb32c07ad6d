#if PostgreSQL
import CPostgreSQL
import SteadfastPostgreSQL
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The server that STEADFAST_POSTGRESQL names, which `postgresql_server.py` sets.
struct PostgreSQLDatabase: Database {
  let name = "PostgreSQL"
  let connection: String

  init() throws {
    guard let connection = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"] else {
      throw Failed(reason: "run this program with Tests/EndToEnd/postgresql_server.py --durable")
    }
    self.connection = connection
  }

  func withStore(_ body: (any Persistence, String) async throws -> Void) async throws {
    let store = PostgreSQLStore(connection)
    try await store.open()
    try await body(store, connection)
    try await PostgreSQLStore(connection).destroy()
  }

  /// The processes of the server, if it is on this machine.
  func server() throws -> ServerProcesses? {
    let connection = try RawConnection(connection)
    return ServerProcesses(child: try connection.queryInteger("select pg_backend_pid()"))
  }

  func table(at place: String) throws -> PostgreSQLTable { try PostgreSQLTable(place) }
}

/// The table of a PostgreSQL store.
final class PostgreSQLTable: RawTable {
  struct Claimed {
    /// An array of IDs in binary form.
    let ids: [UInt8]
    let token: Int64
  }

  private let connection: RawConnection

  init(_ place: String) throws { connection = try RawConnection(place) }

  private static let columns = """
    (id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      uses_backoff, holds_order, dependency_rule, state, retry_count, interruption_count, put_off)
    """
  private static let values = """
    'Increment', '', $1, 'json', 0, 0, now(), now(), true, false, 'allSucceeded',
      'waiting', 0, 0, false
    """

  /// Inserts each task with its own statement, and sends all statements together.
  func insert(_ numbers: Range<Int>) throws {
    if numbers.count > 1 { try connection.send("begin") }
    for number in numbers {
      let id = withUnsafeBytes(of: UUID().uuid) { Array($0) }
      try connection.send(
        "insert into steadfast_task \(Self.columns) values ($2, \(Self.values))",
        Array(#"{"number":\#(number)}"#.utf8),
        id
      )
    }
    if numbers.count > 1 { try connection.send("commit") }
    try connection.waitForResults()
  }

  func fill(_ count: Int) throws {
    try connection.send(
      """
      insert into steadfast_task \(Self.columns)
      select gen_random_uuid(), \(Self.values) from generate_series(1, $2::bigint)
      """,
      Array(#"{"number":1}"#.utf8),
      count.bytes
    )
    try connection.waitForResults()
    try connection.send("vacuum analyze steadfast_task")
    try connection.waitForResults()
  }

  func claim(_ limit: Int) throws -> Claimed {
    let token = Int.random(in: 1...Int.max)
    try connection.send("set synchronous_commit = off")
    try connection.send(
      """
      with first as materialized (
        select id from steadfast_task
        where is_ready and available_date = coalesce(due_date, created_date) and position > 0
          and queue = '' and ~priority = -1 and available_date <= now()
        order by available_date, position limit $1::bigint for update skip locked)
      update steadfast_task as task set state = 'running', lease_token = $2
      from first where task.id = first.id returning task.*
      """,
      limit.bytes,
      token.bytes
    )
    guard let rows = try connection.waitForResults().last else { throw Failed() }
    guard rows.count == limit else { throw Failed() }
    for row in 0..<limit { for column in 0..<rows.columnCount { consume(rows[row, column].first) } }
    return Claimed(
      ids: RawConnection.binaryArray(of: (0..<limit).map { rows[$0, 0] }, type: 2950),
      token: Int64(token)
    )
  }

  func complete(_ claimed: Claimed) throws {
    try connection.send("set synchronous_commit = on")
    try connection.send(
      "delete from steadfast_task where id = any ($1) and lease_token = $2",
      claimed.ids,
      claimed.token.bytes
    )
    try connection.waitForResults()
  }

  func release(_ claimed: Claimed) throws {
    try connection.send("set synchronous_commit = off")
    try connection.send(
      """
      update steadfast_task set state = 'waiting', lease_token = null
      where id = any ($1) and lease_token = $2
      """,
      claimed.ids,
      claimed.token.bytes
    )
    try connection.waitForResults()
  }
}

extension FixedWidthInteger {
  /// The bytes in big-endian order.
  var bytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }
}
#endif
