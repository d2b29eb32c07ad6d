#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// The versions of the tables.
struct SchemaTests {
  /// Returns the definitions of the tables, indexes and triggers.
  private func definitions(in database: Connection) throws -> [String] {
    try database.allRows("select type, name, sql from sqlite_schema order by name", []) {
      "\($0.text(0)) \($0.text(1)): \($0.text(2))"
    }
  }

  @Test(arguments: 1..<Schema().version)
  func `tables of each older version are migrated and keep their tasks`(
    _ version: Int
  ) async throws {
    try await withTemporaryFolder { folder in
      let (url, new) = (folder.appending(path: "db"), folder.appending(path: "new"))
      let connection = try database(at: url, prefix: "jobs")
      try Schema(steps: Array(Schema().steps.prefix(version))).migrate(connection, prefix: "jobs")
      try connection.execute(
        """
        insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
          created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
          retry_count, interruption_count, put_off)
        values (x'01900000000070008000000000000001', 'A', '', x'7b7d', 'json', 1, 0, 1, 1, 1, 0,
          'allSucceeded', 'running', 0, 0, 0)
        """
      )
      let store = SQLiteStore(at: url, prefix: "jobs")
      // The task was claimed by a process that has ended.
      let claimed = try await store.claim(.make()).tasks.map(\.record)
      #expect(claimed.map(\.id) == [TaskRecord.make(1).id])
      #expect(claimed.map(\.interruptionCount) == [1])
      try await SQLiteStore(at: new, prefix: "jobs").open()
      let present = try definitions(in: database(at: new))
      #expect(try definitions(in: connection) == present)
      #expect(present.contains { $0.hasPrefix("index jobs_recent:") })
    }
  }

  @Test func `dates that were stored before version 4 count from the last failure or the creation`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let connection = try database(at: url)
      let third = Schema(steps: Array(Schema().steps.prefix(3)))
      try third.migrate(connection, prefix: "steadfast")
      let rows: [(state: String, available: Int, failed: String, countedFrom: Double?)] = [
        ("waiting", 10, "null", 10), ("waiting", 60, "50", 50), ("parked", 5, "20", 10),
        ("waiting", 60, "null", nil), ("suspended", 60, "50", nil),
      ]
      for (number, row) in rows.enumerated() {
        try connection.execute(
          """
          insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
            created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
            retry_count, interruption_count, put_off, failed_date, last_error)
          values (x'0190000000007000800000000000000\(number)', 'A', '', x'7b7d', 'json', 1, 0, 10,
            \(row.available), 1, 0, 'allSucceeded', '\(row.state)', 0, 0, 0, \(row.failed), 'no')
          """
        )
      }
      let store = SQLiteStore(at: url)
      try await store.open()
      let found = try await store.tasks(matching: TaskFilter(), after: nil, limit: 9)
      #expect(found.map { $0.countedFrom?.timeIntervalSince1970 } == rows.map(\.countedFrom))
    }
  }

  @Test func `the trigger calculates the next value of seq like the store`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let found = try database(at: url).first(
        "select sql from sqlite_schema where name = 'steadfast_insert'"
      ) { $0.text(0) }
      let trigger = try #require(found)
      #expect(trigger.ranges(of: Tables.nextPosition).count == 3)
      #expect(trigger.ranges(of: "max(seq)").count == 3)
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `the version can be read while another connection creates and drops the tables`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try database(at: url).execute("pragma journal_mode = wal; create table mine (a)")
      let ends = Log<Bool>()
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
          defer { ends.add(true) }
          let connection = try database(at: url)
          try connection.execute("pragma synchronous = off")
          for _ in 1...300 {
            try connection.execute("begin immediate")
            try Schema().migrate(connection, prefix: "steadfast")
            try connection.execute("commit; begin immediate")
            try Schema().drop(from: connection, prefix: "steadfast")
            try connection.execute("commit")
          }
        }
        // The loop blocks its thread until the other task has ended. The other task needs a thread,
        // too.
        group.addTask(executorPreference: ThreadForEachJob()) {
          let connection = try database(at: url)
          repeat {
            let version = try Schema().version(in: connection, prefix: "steadfast")
            #expect(version == nil || version == Schema().version)
          } while ends.entries.isEmpty
        }
        try await group.waitForAll()
      }
    }
  }
}
#endif
