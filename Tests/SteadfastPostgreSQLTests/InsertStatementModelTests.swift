#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

extension Connection {
  /// Executes a statement as another program would, with its values as text.
  ///
  /// - Returns: Whether the task was added.
  func run(_ statement: InsertStatement) throws -> Bool {
    var text = statement.text
    for (number, parameter) in zip(1..., statement.parameters).reversed() {
      let literal =
        switch parameter {
        case .null: "null"
        case .integer(let value): "\(value)"
        case .real(let value): "\(value)"
        case .text(let value): "'" + value.replacing("'", with: "''") + "'"
        case .bytes(let bytes):
          "'\\x" + bytes.map { String(Int($0) + 256, radix: 16).dropFirst() }.joined() + "'"
        }
      text = text.replacing("$\(number)::", with: literal + "::")
    }
    return try first(text) { $0.flag(0) } ?? false
  }
}

/// Tests that a statement inserts a task exactly as the store does.
@Suite(.onServer)
struct PostgreSQLInsertStatementModelTests {
  private struct Side: InsertionSide {
    private let tables: Tables
    private let location: DatabaseLocation

    init(_ test: TestTables) throws {
      location = DatabaseLocation(test.connection, prefix: test.prefix)
      let database = try test.database()
      try SessionSettings(location).apply(to: database)
      try Schema().migrate(database, prefix: test.prefix, mayChange: true)
      tables = Tables(database, isShared: true)
    }

    func apply(_ change: PreparedChange) throws -> ChangeOutcome {
      var others: Set<TaskID> = []
      while true {
        try tables.database.send("begin")
        do {
          try tables.lock(LockPlan([[change]]), others: others)
          let outcome = try tables.apply([change])[0]
          try tables.database.send("commit")
          try tables.database.flush()
          return outcome
        } catch let refusal as BatchRefusal {
          try tables.database.execute("rollback")
          tables.changedOrderKeys = []
          return refusal.outcomes[0]
        } catch let more as MissingLocksError {
          try tables.database.execute("rollback")
          others = more.tasks
        }
      }
    }

    func claim(_ request: ClaimRequest) throws -> [ClaimedTask] { try tables.claim(request).tasks }

    func statement(for record: TaskRecord, _ policy: UniquePolicy) throws -> InsertStatement {
      try InsertStatement(record, policy, location)
    }

    func execute(_ statement: InsertStatement) throws -> StatementResult {
      do {
        return .isThere(try tables.database.run(statement))
      } catch let failure as PostgreSQLFailure {
        return .failed(failure.reason)
      }
    }

    /// Returns all rows, but without the tokens of leases, which are random, without the ends of
    /// leases, and without earlier failures, whose JSON has no fixed order.
    func rows() throws -> [String] {
      try Schema.tables.filter { $0 != "request" }.flatMap { table in
        try tables.database.allRows(
          """
          select (to_jsonb(entry)
            - '{lease_token, lease_end, claim_date, earlier_failures}'::text[])::text
          from steadfast_\(table) as entry order by 1
          """
        ) { "\(table) \($0.text(0))" }
      }
    }
  }

  @Test func `a task leaves the same rows whether a statement or the store inserts it`()
    async throws
  {
    let seeds = Soak.seed.map { [$0] } ?? (0..<Soak.runs(short: 30)).map(UInt64.init)
    let outcomes = try await InsertionPair<Side>.outcomes(ofSeeds: seeds, steps: 60) { body in
      try await withTables { own in
        try await withTables { other in try body(Side(own), Side(other)) }
      }
    }
    for outcome in InsertionPair<Side>.rareOutcomes where seeds.count >= 30 {
      #expect((outcomes[outcome] ?? 0) > 5, "\(outcome) in \(outcomes)")
    }
  }
}
#endif
