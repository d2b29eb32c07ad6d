#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Tests that a statement inserts a task exactly as the store does.
struct InsertStatementModelTests {
  private struct Side: InsertionSide {
    private let tables: Tables

    init(at url: URL) throws {
      let connection = try database(at: url)
      try connection.execute("pragma journal_mode = wal; pragma synchronous = off")
      try Schema().migrate(connection, prefix: "steadfast")
      tables = Tables(connection, isShared: true) { 0 }
    }

    func apply(_ change: PreparedChange) throws -> ChangeOutcome {
      try tables.database.execute("begin immediate")
      do {
        let outcome = try tables.apply([change])[0]
        try tables.database.execute("commit")
        return outcome
      } catch let refusal as BatchRefusal {
        try tables.database.execute("rollback")
        return refusal.outcomes[0]
      }
    }

    func claim(_ request: ClaimRequest) throws -> [ClaimedTask] {
      try tables.claim(request).tasks
    }

    func statement(for record: TaskRecord, _ policy: UniquePolicy) throws -> InsertStatement {
      try InsertStatement(record, policy, prefix: "steadfast")
    }

    func execute(_ statement: InsertStatement) throws -> StatementResult {
      do {
        try tables.database.run(statement)
        let isThere = try tables.database.hasRow(
          "select 1 from steadfast_insertion where id = ?1",
          .id(statement.id)
        )
        return .isThere(isThere)
      } catch let failure as SQLiteFailure {
        return .failed(failure.text)
      }
    }

    /// Returns all rows, but without the tokens of leases, which are random, and without earlier
    /// failures, whose JSON has no fixed order.
    func rows() throws -> [String] {
      try Schema.tables.flatMap { table in
        let columns = try tables.database.allRows(
          "select name from pragma_table_info('steadfast_\(table)')",
          []
        ) { $0.text(0) }
        let texts = columns.filter { $0 != "lease_token" && $0 != "earlier_failures" }.map {
          "quote(\($0))"
        }
        let row = texts.joined(separator: " || ' ' || ")
        return try tables.database.allRows(
          "select \(row) from steadfast_\(table) order by 1",
          []
        ) { "\(table) \($0.text(0))" }
      }
    }
  }

  @Test func `a task leaves the same rows whether a statement or the store inserts it`()
    async throws
  {
    let seeds = Soak.seed.map { [$0] } ?? (0..<Soak.runs(short: 30)).map(UInt64.init)
    let outcomes = try await InsertionPair<Side>.outcomes(ofSeeds: seeds, steps: 60) { body in
      try await withTemporaryFolder { folder in
        try body(
          Side(at: folder.appending(path: "own")),
          Side(at: folder.appending(path: "other"))
        )
      }
    }
    // The rare outcomes occurred.
    for outcome in InsertionPair<Side>.rareOutcomes where seeds.count >= 30 {
      #expect((outcomes[outcome] ?? 0) > 5, "\(outcome) in \(outcomes)")
    }
  }
}
#endif
