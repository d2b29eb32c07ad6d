#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue

@testable import SteadfastSQLite

/// Opens a database for a test, beside a store.
func database(at url: URL, prefix: String = "steadfast") throws -> Connection {
  try Connection(url.path, .making, prefix: prefix)
}

/// Returns the definitions of the tables and indexes of a database.
func tableDefinitions(at url: URL) throws -> [String] {
  try database(at: url).allRows(
    "select sql from sqlite_schema where sql is not null order by name"
  ) { $0.text(0) }
}

extension Connection {
  /// Executes a statement that adds a task, as another program does.
  func run(_ statement: InsertStatement) throws {
    let values = statement.parameters.map { parameter -> SQLValue in
      switch parameter {
      case .null: .null
      case .integer(let value): .integer(value)
      case .real(let value): .real(value)
      case .text(let value): .text(value)
      case .bytes(let value): .bytes(value)
      }
    }
    try run(statement.text, values)
  }
}

extension TaskRecord {
  /// A task that is available, with a number in its ID.
  static func make(
    _ number: UInt64,
    name: String = "A",
    bytes: [UInt8] = Array("{}".utf8),
    uniqueKey: String? = nil,
    orderKey: String? = nil,
    dependencies: TaskDependencies? = nil,
    queue: String = ""
  ) -> TaskRecord {
    TaskRecord(
      id: TaskID(high: 0x0190_0000_0000_7000, low: 0x8000_0000_0000_0000 | number),
      name: name,
      payload: StoredPayload(bytes, format: .json),
      createdDate: Date(timeIntervalSince1970: 1_800_000_000),
      uniqueKey: uniqueKey,
      orderKey: orderKey,
      dependencies: dependencies,
      queue: queue,
      availableDate: Date(timeIntervalSince1970: 1_800_000_000)
    )
  }
}

extension ClaimRequest {
  /// A request for tasks with the name "A", long after they are available.
  static func make(limit: Int = 2, queue: String = "") -> ClaimRequest {
    ClaimRequest(
      limit: limit,
      queue: queue,
      names: ["A": limit],
      now: Date(timeIntervalSince1970: 1_900_000_000)
    )
  }
}

extension SQLiteStore {
  func insert(_ records: TaskRecord...) async throws -> [ChangeOutcome] {
    try await apply(records.map { .insert($0, onDuplicate: .keep) }, durability: .durable)
  }

  func tasks(matching filter: TaskFilter) async throws -> [TaskRecord] {
    try await tasks(matching: filter, after: nil, limit: 1_000)
  }

  /// Returns the error of a call; `nil` if it succeeds.
  func error(of call: (SQLiteStore) async throws -> Void) async -> SQLiteError? {
    do {
      try await call(self)
      return nil
    } catch {
      return error as? SQLiteError
    }
  }

  /// Returns the error of opening the store; `nil` if it succeeds.
  func openingError() async -> SQLiteError? { await error { try await $0.open() } }
}
#endif
