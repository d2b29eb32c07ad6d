#if PostgreSQL
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// The server for tests, which `Tests/EndToEnd/postgresql_server.py` starts.
enum Server {
  /// The connection string of a database that tests can use; `nil` if there is none.
  static let connection = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"]
  /// The connection string of a server that tests can restart, and the command that restarts it.
  static let restarted = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_RESTARTED"]
  static let restartCommand = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_RESTART"]
  /// The connection string of a server that requires TLS, and the file of its certificate.
  static let secured = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_TLS"]
  static let certificate = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_CERTIFICATE"]
  /// The connection string of a pooler that gives each transaction another session.
  static let pooled = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_POOLED"]
  /// A role that can connect only with a password.
  ///
  /// A test creates the role.
  static let guarded = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL_GUARDED"]

  /// Returns the connection string with additional parameters.
  static func connection(with parameters: String) throws -> String {
    // Of two values for a parameter, libpq uses the later one.
    try #require(connection) + " " + parameters
  }
}

extension Trait where Self == ConditionTrait {
  /// Runs the tests only if there is a server.
  static var onServer: Self {
    .enabled(
      if: Server.connection != nil,
      "run python3 Tests/EndToEnd/postgresql_server.py --restarts --tls --pooler swift test --traits PostgreSQL"
    )
  }

  /// Runs the tests only if there is a server that requires TLS.
  static var onSecuredServer: Self {
    .enabled(if: Server.secured != nil, "STEADFAST_POSTGRESQL_TLS names no server")
  }
}

/// The tables of a test, which are removed when the test ends.
struct TestTables {
  let connection: String
  var prefix = "test_" + String(UInt64.random(in: 0...UInt64.max), radix: 16)

  func store(sharing: StoreSharing? = StoreSharing(), migrates: Bool = true) -> PostgreSQLStore {
    PostgreSQLStore(connection, prefix: prefix, sharing: sharing, migrates: migrates)
  }

  /// Opens a separate connection for the test.
  func database() throws -> Connection {
    let parameters = try ConnectionString(connection).parameters
    return try Connection(parameters, Connection.Substitutions(prefix: prefix))
  }
}

/// Calls `body` with tables of its own, and then removes the tables.
///
/// A test can wait for the server in a loop that blocks its thread, so each job of `body` runs on
/// its own thread. Otherwise, two such loops would occupy all of Swift's threads on a machine with
/// two cores, and the work for which the loops wait would never start.
func withTables<Success>(
  on server: String? = Server.connection,
  _ body: (TestTables) async throws -> Success
) async throws -> Success {
  let tables = TestTables(connection: try #require(server))
  func remove() async throws {
    try tables.database().execute(
      """
      drop table if exists steadfast_task, steadfast_dependency, steadfast_memory,
        steadfast_value, steadfast_request, steadfast_schema cascade;
      drop sequence if exists steadfast_place cascade;
      drop function if exists steadfast_insert, steadfast_date;
      """
    )
  }
  do {
    let success = try await withTaskExecutorPreference(ThreadForEachJob()) {
      try await body(tables)
    }
    try await remove()
    return success
  } catch {
    try? await remove()
    throw error
  }
}

extension TaskRecord {
  /// A task that is available, with a number in its ID.
  static func numbered(
    _ number: Int,
    name: String = "A",
    bytes: [UInt8] = Array("{}".utf8),
    uniqueKey: String? = nil,
    orderKey: String? = nil,
    blocksOrderOnFailure: Bool = false,
    dependencies: TaskDependencies? = nil
  ) -> TaskRecord {
    let date = Date(timeIntervalSince1970: 1_800_000_000)
    return TaskRecord(
      id: TaskID(high: 0x0190_0000_0000_7000, low: 0x8000_0000_0000_0000 | UInt64(number)),
      name: name,
      payload: StoredPayload(bytes, format: .json),
      createdDate: date,
      uniqueKey: uniqueKey,
      orderKey: orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure,
      dependencies: dependencies,
      availableDate: date
    )
  }
}

extension ClaimRequest {
  /// A request for tasks with the name "A", long after they are available.
  static func ofA(limit: Int = 2, leaseDuration: Duration? = .seconds(60)) -> ClaimRequest {
    ClaimRequest(
      limit: limit,
      names: ["A": limit],
      now: Date(timeIntervalSince1970: 1_900_000_000),
      leaseDuration: leaseDuration
    )
  }
}

extension Tables {
  /// Claims tasks within the current transaction.
  func claim(
    _ request: ClaimRequest,
    from cursors: ClaimCursors.Cursors? = nil
  ) throws -> Claim {
    try sendClaim(request, from: cursors, token: 17)
    let rows = try #require(try database.flush().last)
    let tasks = try claimedTasks(in: rows, with: 17).tasks.map(\.task)
    return Claim(tasks: tasks, nextDate: nil)
  }
}

extension PostgreSQLStore {
  func insert(_ records: TaskRecord...) async throws -> [ChangeOutcome] {
    try await apply(records.map { .insert($0, onDuplicate: .keep) }, durability: .durable)
  }

  func tasks(matching filter: TaskFilter) async throws -> [TaskRecord] {
    try await tasks(matching: filter, after: nil, limit: 1_000)
  }

  /// Returns the error of a call; `nil` if it succeeds.
  func error(of call: (PostgreSQLStore) async throws -> Void) async -> PostgreSQLError? {
    do {
      try await call(self)
      return nil
    } catch {
      return error as? PostgreSQLError
    }
  }

  /// Returns the error of opening the store; `nil` if it succeeds.
  func openingError() async -> PostgreSQLError? { await error { try await $0.open() } }
}
#endif
