#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Claims that a store has left behind when another store opens the tables.
@Suite(.onServer, .timeLimit(.minutes(5)))
struct OverdueClaimTests {
  @Test(arguments: [nil, StoreSharing(), StoreSharing(leaseDuration: .seconds(3_600))])
  func `the next store ends the claims of an unshared store`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withTables { tables in
      let first = tables.store(sharing: nil)
      _ = try await first.insert(.numbered(1), .numbered(2, orderKey: "key"))
      #expect(try await first.claim(.ofA(leaseDuration: nil)).tasks.count == 2)
      try await first.close()
      let second = tables.store(sharing: sharing)
      let claim = try await second.claim(.ofA(leaseDuration: sharing?.leaseDuration))
      #expect(claim.tasks.map(\.record.interruptionCount) == [1, 1])
      try await second.close()
    }
  }

  @Test func `an unshared store ends the claims of shared stores before they expire`()
    async throws
  {
    try await withTables { tables in
      let first = tables.store()
      _ = try await first.insert(.numbered(1), .numbered(2, orderKey: "key"))
      let claimed = try await first.claim(.ofA(leaseDuration: .seconds(3_600))).tasks
      #expect(claimed.count == 2)
      try await first.close()
      let second = tables.store(sharing: nil)
      let claim = try await second.claim(.ofA(leaseDuration: nil))
      #expect(claim.tasks.map(\.record.interruptionCount) == [1, 1])
      // The first store's lease is stale.
      let end = TaskChange.succeed(claimed[0].lease, at: Date(), retains: false)
      #expect(try await second.apply([end], durability: .durable) == [.stale])
      try await second.close()
    }
  }

  /// A queue rejects such a store, but the store can be used without a queue.
  @Test(arguments: [.zero, .seconds(Int64.min / 2)] as [Duration])
  func `a store with leases of zero or negative duration still claims tasks`(
    _ duration: Duration
  ) async throws {
    try await withTables { tables in
      let store = tables.store(sharing: StoreSharing(leaseDuration: duration))
      _ = try await store.insert(.numbered(1))
      let claim = try await store.claim(.ofA(leaseDuration: duration))
      #expect(claim.tasks.count == 1)
      try await store.close()
    }
  }

  @Test func `opening a second shared store leaves the claims of the first store valid`()
    async throws
  {
    try await withTables { tables in
      let (first, second) = (tables.store(), tables.store())
      _ = try await first.insert(.numbered(1))
      let claimed = try await first.claim(.ofA()).tasks
      #expect(claimed.count == 1)
      #expect(try await second.claim(.ofA()).tasks.isEmpty)
      let end = TaskChange.succeed(claimed[0].lease, at: Date(), retains: false)
      #expect(try await second.apply([end], durability: .durable) == [.done])
      for store in [first, second] { try await store.close() }
    }
  }

  @Test func `a claim that reads from cursors finds a task whose lease has expired`()
    async throws
  {
    try await withTables { tables in
      let offset = Mutex(Duration.zero)
      let store = PostgreSQLStore(
        tables.connection,
        prefix: tables.prefix,
        sharing: StoreSharing(),
        clockOffset: { offset.withLock(\.self) },
        alwaysKeepsCursors: true
      )
      let other = tables.store()
      _ = try await other.insert(.numbered(1), .numbered(2))
      #expect(try await other.claim(.ofA(limit: 1)).tasks.count == 1)
      // The cursor of the lane is now after the task that the other store has claimed.
      #expect(try await store.claim(.ofA(limit: 8)).tasks.count == 1)
      #expect(try await store.claim(.ofA(limit: 8)).tasks.isEmpty)
      offset.withLock { $0 = .seconds(61) }
      let found = try await store.claim(.ofA(limit: 8)).tasks
      #expect(found.map(\.record.id).contains(TaskRecord.numbered(1).id))
      for store in [store, other] { try await store.close() }
    }
  }

  @Test(arguments: [nil, StoreSharing()])
  func `a reconnecting store ends the claims of a store that was open during the outage`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withTables { tables in
      let connection = "\(tables.connection) application_name=\(tables.prefix)"
      let first = PostgreSQLStore(connection, prefix: tables.prefix, sharing: sharing)
      _ = try await first.insert(.numbered(1), .numbered(2))
      let own = try await first.claim(.ofA(limit: 1, leaseDuration: sharing?.leaseDuration)).tasks
      #expect(own.count == 1)
      let database = try tables.database()
      while try database.hasRow(
        """
        select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1::text
          and query not like 'listen%'
        """,
        .text(tables.prefix)
      ) {}
      let other: StoreSharing? =
        sharing == nil ? StoreSharing(leaseDuration: .seconds(3_600)) : nil
      let second = tables.store(sharing: other)
      let claim = ClaimRequest.ofA(leaseDuration: other?.leaseDuration)
      // The second store requeues the first store's task.
      #expect(try await second.claim(claim).tasks.map(\.record.interruptionCount) == [1, 0])
      try await second.close()
      _ = try await first.insert(.numbered(3))
      let last = try await first.claim(.ofA(limit: 3, leaseDuration: sharing?.leaseDuration)).tasks
      #expect(last.map(\.record.interruptionCount) == [2, 1, 0])
      try await first.close()
    }
  }

  @Test func `expired leases, ended tasks and parked tasks are found through an index`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      try database.execute(
        """
        insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
          created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
          retry_count, interruption_count, put_off)
        select gen_random_uuid(), 'A', '', '{}', 'json', 1, 0, now(), now(), true, false,
          'allSucceeded', 'waiting', 0, 0, false
        from generate_series(1, 20000);
        analyze steadfast_task
        """
      )
      for claims in Tables.OverdueClaims.allCases {
        let plan = try database.allRows("explain \(claims.statement)") { $0.text(0) }
        #expect(plan.contains { $0.contains("\(tables.prefix)_lease") }, "\(claims): \(plan)")
      }
      for (state, index) in [(TaskState.succeeded, "ended"), (.parked, "parked")] {
        let found = database.existenceStatement(for: TaskFilter(states: [state]))
        let plan = try database.rows("explain \(found.statement)", found.values).map { $0.text(0) }
        #expect(plan.contains { $0.contains("\(tables.prefix)_\(index)") }, "\(plan)")
      }
      try await store.close()
    }
  }

  @Test func `the tasks of a claim whose response was lost are requeued before the next claim`()
    async throws
  {
    try await withProxy { proxy, tables in
      let store = tables.store(sharing: nil)
      _ = try await store.insert(.numbered(1), .numbered(2, orderKey: "key"))
      // Another program gets the lock of the tables when the store loses its connection.
      let release = DispatchSemaphore(value: 0)
      let states = Log<String>()
      Thread.detachNewThread {
        guard let database = try? tables.database() else { return }
        let isTaken = try? database.hasRow(
          """
          select pg_advisory_lock_shared(hashtextextended(current_schema() || '.' || $1, 1))
          """,
          .text(tables.prefix)
        )
        states.add(isTaken == true ? "taken" : "failed")
        release.wait()
        _ = try? database.hasRow("select pg_advisory_unlock_all()")
        states.add("free")
      }
      defer { release.signal() }
      let database = try tables.database()
      while try !database.hasRow(
        """
        select from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and not granted
          and (classid::bigint << 32) | objid::bigint
            = hashtextextended(current_schema() || '.' || $1, 1)
        """,
        .text(tables.prefix)
      ) {
        try #require(states.entries.isEmpty)
      }
      proxy.planCuts([.after])
      let error = await store.error { _ = try await $0.claim(.ofA(leaseDuration: nil)) }
      #expect(error?.code == .inUse)
      #expect(proxy.count(of: .after) == 1)
      #expect(states.entries == ["taken"])
      let running = TaskFilter(states: [.running])
      #expect(try await store.count(matching: running) == 2)
      release.signal()
      while states.entries != ["taken", "free"] { try #require(states.entries.count < 3) }
      let claim = try await store.claim(.ofA(leaseDuration: nil))
      #expect(claim.tasks.map(\.record.id) == [1, 2].map { TaskRecord.numbered($0).id })
      #expect(claim.tasks.map(\.record.interruptionCount) == [0, 0])
      try await store.close()
    }
  }
}
#endif
