#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Claims that find rows that can't be read, or that fail.
struct ClaimTests {
  @Test func `a task that can't be read is parked, and the others are claimed`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let (unreadable, readable) = (TaskRecord.make(1), TaskRecord.make(2))
      _ = try await store.insert(unreadable, readable)
      let connection = try database(at: url)
      try connection.run(
        "update steadfast_task set format = 'later' where id = ?1",
        .id(unreadable.id)
      )
      let claim = try await store.claim(.make())
      #expect(claim.tasks.map(\.record.id) == [readable.id])
      // Other tasks may be available in place of the unreadable task.
      #expect(claim.nextDate == ClaimRequest.make().now)
      let found = try connection.first(
        "select state, last_error, lease_token from steadfast_task where id = ?1",
        .id(unreadable.id)
      ) { row in [row.text(0), row.text(1), row.isNull(2) ? "no lease" : "a lease"] }
      let reason = "its row has a value in format that this version of Steadfast does not know"
      #expect(found == ["parked", reason, "no lease"])
      #expect(try await store.claim(.make()).nextDate == nil)
      let error = await store.error { _ = try await $0.tasks(matching: TaskFilter()) }
      #expect(error?.code == .damaged)
      #expect(error?.message.contains("the row of the task \(unreadable.id)") == true)
      // A version that can read the task continues with it.
      try connection.run("update steadfast_task set format = 'json'")
      _ = try await store.apply([.unpark(name: "A")], durability: .durable)
      #expect(try await store.claim(.make()).tasks.map(\.record.id) == [unreadable.id])
    }
  }

  @Test func `a claim that fails leaves all tasks unclaimed`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let (first, second) = (TaskRecord.make(1), TaskRecord.make(2))
      _ = try await store.insert(first, second)
      let connection = try database(at: url)
      try connection.execute(
        """
        create trigger refusal before update on steadfast_task
        when new.state = 'running' and (select count(*) from steadfast_task
          where state = 'running') > 0
        begin select raise(abort, 'not this one'); end
        """
      )
      #expect(await store.error { _ = try await $0.claim(.make()) }?.code == .refused)
      try connection.execute("drop trigger refusal")
      #expect(try await store.count(matching: TaskFilter(states: [.running])) == 0)
      let claim = try await store.claim(.make())
      #expect(claim.tasks.map(\.record.id) == [first.id, second.id])
      #expect(claim.tasks.allSatisfy { $0.record.interruptionCount == 0 })
    }
  }

  /// Adds tasks that become available a second after each other, all after their creation.
  private func addDelayedTasks(_ count: Int, names: Int, to database: Connection) throws {
    try database.run(
      """
      with recursive number (n) as (select 1 union all select n + 1 from number where n < ?1)
      insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
        created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
        retry_count, interruption_count, put_off)
      select randomblob(16), char(65 + n % ?2), '', '{}', 'json', 1, n % 3, 0, n, 1, 0,
        'allSucceeded', 'waiting', 0, 0, 0 from number
      """,
      .integer(count),
      .integer(names)
    )
  }

  @Test func `a claim passes over many tasks of names that have no room`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      try await store.open()
      try addDelayedTasks(3_000, names: 4, to: database(at: url))
      let fallback = try await store.claim(
        ClaimRequest(
          limit: 60,
          names: ["A": 0, "B": 1, "C": 2],
          otherNames: .max,
          now: Date(timeIntervalSince1970: 4_000)
        )
      )
      let names = fallback.tasks.map(\.record.name)
      #expect(names == ["C", "B", "D", "C"] + Array(repeating: "D", count: 56))
      #expect(fallback.tasks.allSatisfy { $0.record.priority.rawValue == 2 })
      let paused = try await store.claim(
        ClaimRequest(limit: 3, names: ["A": 0, "E": 8], now: Date(timeIntervalSince1970: 4_000))
      )
      #expect(paused.tasks.isEmpty)
      let listed = try await store.claim(
        ClaimRequest(limit: 300, names: ["A": 2, "B": 0], now: Date(timeIntervalSince1970: 4_000))
      )
      #expect(listed.tasks.map(\.record.name) == ["A", "A"])
      #expect(listed.nextDate == nil)
    }
  }

  @Test func `a task that was created by a clock that is ahead is claimed at its date`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let store = SQLiteStore(at: folder.appending(path: "db"))
      let task = TaskRecord.make(1)
      _ = try await store.insert(task)
      var request = ClaimRequest.make()
      request.now = task.createdDate - 5
      let claim = try await store.claim(request)
      #expect(claim.tasks.isEmpty)
      #expect(claim.nextDate == task.createdDate)
    }
  }

  @Test func `a claim makes 10,000 delayed tasks due, and the next claim makes the rest due`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      try await store.open()
      try addDelayedTasks(10_050, names: 1, to: database(at: url))
      let request = ClaimRequest(
        limit: 10_100,
        names: ["A": .max],
        now: Date(timeIntervalSince1970: 20_000)
      )
      let first = try await store.claim(request)
      #expect(first.tasks.count == 10_000)
      #expect(first.tasks.allSatisfy { $0.record.availableDate.timeIntervalSince1970 <= 10_000 })
      #expect(first.nextDate == Date(timeIntervalSince1970: 10_001))
      #expect(try await store.claim(request).tasks.count == 50)
    }
  }
}
#endif
