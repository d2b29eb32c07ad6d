#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// The efficiency of the statements that run for each task.
struct StatementTests {
  /// Returns the instructions to which SQLite compiles a statement.
  private func instructions(of sql: String, in database: Connection) throws -> [String] {
    try database.allRows("explain \(sql)", []) { $0.text(1) }
  }

  @Test(arguments: [
    "insert into steadfast_task (id, name, queue, format, schema_version, priority, created_date,"
      + " available_date, uses_backoff, holds_order, dependency_rule, state, retry_count,"
      + " interruption_count, put_off) values (x'01', 'A', '', 'json', 1, 0, 1, 1, 1, 0,"
      + " 'allSucceeded', 'waiting', 0, 0, 0)",
    "update steadfast_task set state = 'running', lease_token = 1 where seq = 1",
    "delete from steadfast_task where id = x'01'",
  ])
  func `changing a row uses no temporary table and no trigger`(_ sql: String) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let instructions = try instructions(of: sql, in: database(at: url))
      #expect(instructions.count > 100)
      #expect(!instructions.contains("OpenEphemeral"))
      #expect(!instructions.contains("Program"))
    }
  }

  @Test func `expired leases are found through an index`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let plan = try database(at: url).allRows(
        "explain query plan \(Tables.overdueClaims)",
        [.real(1)]
      ) { $0.text(3) }
      #expect(plan == ["SEARCH steadfast_task USING INDEX steadfast_lease (lease_end<?)"])
    }
  }

  /// Returns the plan by which SQLite finds the rows of a statement.
  private func queryPlan(of sql: String, in database: Connection) throws -> [String] {
    try database.allRows("explain query plan \(sql)", []) { $0.text(3) }
  }

  @Test func `a census reads each of four indexes once, and no row of the table`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let plan = try queryPlan(of: Connection.census, in: database(at: url))
      let scans = plan.filter { $0.hasPrefix("SCAN steadfast_task") }
      let indexes = ["ready_name", "resumed", "resumed", "apart", "lease"]
      #expect(scans.count == indexes.count, "\(plan)")
      for (scan, index) in zip(scans, indexes) {
        #expect(scan.hasSuffix("INDEX steadfast_\(index)"), "\(plan)")
      }
      let sorts = plan.count { $0.contains("TEMP B-TREE") }
      // Only the running tasks are sorted, which are few.
      #expect(sorts == 1, "\(plan)")
    }
  }

  /// Makes SQLite gather statistics while the tables are small, as `pragma optimize` may.
  private func analyzeTables(at url: URL) throws {
    try database(at: url).execute(
      """
      insert into steadfast_dependency values (x'01', x'02', 1, 'abandoned');
      insert into steadfast_memory values (x'01', 'a', x'02');
      analyze;
      """
    )
  }

  @Test
  func `the next value of seq is found without an index even if SQLite has analysed few tasks`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1), .make(2), .make(3))
      try analyzeTables(at: url)
      try await store.close()
      let connection = try database(at: url)
      let plan = try queryPlan(of: "select \(Tables.nextPosition)", in: connection)
      #expect(plan.contains("SEARCH steadfast_task"))
      #expect(!plan.contains { $0.contains("INDEX") }, "\(plan)")
      let later = SQLiteStore(at: url)
      #expect(try await later.insert(.make(4), .make(5)) == [.done, .done])
      #expect(try connection.first("select \(Tables.nextPosition)") { $0.integer(0) } == 6)
    }
  }

  @Test(arguments: [
    Tables.overdueClaims, Tables.claimsWithoutExpiry, TaskStatements.dependentsToCancel,
    TaskStatements.failure, TaskStatements.noFailure, TaskStatements.counts, TaskStatements.causes,
    TaskStatements.stillFailed, TaskStatements.restart, TaskStatements.leavingTasks,
    TaskStatements.succeededTwin, TaskStatements.memoryDeletion, TaskStatements.memory,
    TaskStatements.memorySize, TaskStatements.move, Tables.passedDelays, Tables.candidates,
    Tables.candidatesWithName, Tables.firstDelay, Tables.firstLaterDate, Tables.readyNames,
  ])
  func `no table is scanned or sorted even if SQLite has analysed few rows`(
    _ sql: String
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1), .make(2), .make(3))
      try analyzeTables(at: url)
      let plan = try queryPlan(of: sql, in: database(at: url))
      // The next position is at the end of the table, and `step` is a list.
      let reads = plan.filter { line in
        line.hasPrefix("SEARCH ") && line != "SEARCH step"
          && !(line == "SEARCH steadfast_task" && sql.contains("nextval"))
      }
      let isFound = reads.allSatisfy { $0.contains("INDEX") || $0.contains("PRIMARY KEY (") }
      #expect(!reads.isEmpty && isFound, "\(plan)")
      let tables = ["steadfast_", "task", "other", "dependency", "failure"]
      let wholes = tables.map { "SCAN \($0)" } + ["BLOOM", "TEMP B-TREE"]
      #expect(!plan.contains { line in wholes.contains(where: line.contains) }, "\(plan)")
    }
  }

  @Test func `a statement that adds a task scans no table even if SQLite has analysed few rows`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1), .make(2), .make(3))
      let statement = try #require(try store.insertStatement(for: .make(4), onDuplicate: .keep))
      func rewindCount() throws -> Int {
        try instructions(of: statement.text, in: database(at: url)).count { $0 == "Rewind" }
      }
      let before = try rewindCount()
      try analyzeTables(at: url)
      #expect(try rewindCount() == before)
    }
  }

  @Test func `an ended task within its uniqueness window is found through an index`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let plan = try queryPlan(of: TaskStatements.succeededTwin, in: database(at: url))
      let range = "(name=? AND unique_key=? AND unique_until>?)"
      #expect(plan == ["SEARCH steadfast_task USING INDEX steadfast_recent \(range)"])
    }
  }

  @Test(arguments: [
    (TaskFilter(uniqueKeys: ["a"]), "key"), (TaskFilter(states: [.succeeded]), "ended"),
    (TaskFilter(states: [.parked]), "parked"),
  ])
  func `a look-up uses its index even if SQLite has analysed few tasks`(
    _ filter: TaskFilter,
    _ index: String
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1, uniqueKey: "a"), .make(2), .make(3))
      try analyzeTables(at: url)
      let connection = try database(at: url)
      // An index is used for a queue's keys, and for the parked tasks of all queues.
      for queue in filter.states == [.parked] ? ["", nil] : [""] {
        var filter = filter
        filter.queue = queue
        let (statement, values) = connection.existenceStatement(for: filter)
        let plan = try connection.allRows("explain query plan \(statement)", values) {
          $0.text(3)
        }
        #expect(plan.contains { $0.contains("INDEX steadfast_\(index)") }, "\(plan)")
      }
    }
  }

  @Test func `the existence of an ended or parked task is found through an index`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let database = try database(at: url)
      for queue in ["", nil] {
        for (state, index) in [(TaskState.succeeded, "ended"), (.parked, "parked")] {
          let filter = TaskFilter(queue: queue, states: [state])
          let (statement, values) = database.existenceStatement(for: filter)
          let plan = try database.allRows("explain query plan \(statement)", values) {
            $0.text(3)
          }
          #expect(plan.contains { $0.contains("INDEX steadfast_\(index)") }, "\(plan)")
        }
      }
    }
  }

  @Test func `removing the first task of a long cascade removes the whole cascade`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let count: UInt64 = 1_500
      var chain: [TaskChange] = []
      for number in 1...count {
        var record = TaskRecord.make(number)
        if number > 1 { record.dependencies.tasks = [TaskRecord.make(number - 1).id] }
        chain.append(.insert(record, onDuplicate: .keep))
      }
      _ = try await store.apply(chain, durability: .durable)
      let first = TaskRecord.make(1).id
      let end = TaskChange.cancel(.unclaimed(first), at: Date(), retains: true)
      _ = try await store.apply([end], durability: .durable)
      #expect(try await store.count(matching: TaskFilter(states: [.cancelled])) == Int(count))
      _ = try await store.apply([.remove(first)], durability: .durable)
      #expect(try await store.count(matching: TaskFilter()) == 0)
      let connection = try database(at: url)
      #expect(try !connection.hasRow("select 1 from steadfast_dependency"))
    }
  }

  @Test func `a claim that fails midway among concurrent calls leaves all tasks unclaimed`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let connection = try database(at: url)
      try await SQLiteStore(at: url).open()
      let tables = Tables(connection, isShared: false) { 0 }
      let records = (1...3).map { TaskRecord.make($0) }
      for record in records {
        _ = try tables.apply([PreparedChange(.insert(record, onDuplicate: .keep))])
      }
      // The last task can't be claimed.
      try connection.execute(
        """
        create trigger refusal before update on steadfast_task
        when new.state = 'running' and new.seq = 3
        begin select raise(abort, 'not this one'); end
        """
      )
      let store = SQLiteStore(at: url)
      let request = ClaimRequest(
        limit: 3,
        names: ["A": 3],
        now: Date(timeIntervalSince1970: 1_900_000_000)
      )
      await withTaskGroup { group in
        for number: UInt64 in 11...30 {
          group.addTask { _ = try? await store.insert(.make(number, name: "B")) }
          group.addTask {
            await #expect(throws: SQLiteError.self) { try await store.claim(request) }
          }
        }
      }
      #expect(try await store.count(matching: TaskFilter(states: [.running])) == 0)
      #expect(try await store.count(matching: TaskFilter(states: [.waiting])) == 23)
    }
  }
}
#endif
