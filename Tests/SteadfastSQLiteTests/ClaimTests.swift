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
}
#endif
