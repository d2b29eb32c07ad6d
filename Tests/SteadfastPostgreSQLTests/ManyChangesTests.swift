#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Transactions with many changes, and concurrent transactions.
@Suite(.onServer, .timeLimit(.minutes(2)))
struct ManyChangesTests {
  @Test(arguments: ["57014", "55P03"], [[20], Array(1...60)])
  func `a call that times out does not make concurrent calls fail`(
    _ state: String,
    _ bad: [Int]
  ) async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      try tables.database().execute(
        """
        create function steadfast_refuse() returns trigger language plpgsql
          as $$ begin raise exception 'too long' using errcode = '\(state)'; end $$;
        create trigger refusal before insert on steadfast_task for each row
          when (new.name = 'bad') execute function steadfast_refuse();
        """
      )
      let failed = try await withThrowingTaskGroup(of: Int?.self) { group in
        for number in 1...60 {
          group.addTask {
            let record = TaskRecord.numbered(number, name: bad.contains(number) ? "bad" : "A")
            let error = await store.error { _ = try await $0.insert(record) }
            #expect(error == nil || error?.code == .busy)
            return error == nil ? nil : number
          }
        }
        return try await group.reduce(into: []) { $0 += [$1].compactMap(\.self) }
      }
      #expect(failed.sorted() == bad)
      #expect(try await store.count(matching: .unfinished) == 60 - bad.count)
      try await store.close()
      try tables.database().execute("drop function steadfast_refuse() cascade")
    }
  }

  @Test func `pruning removes the chosen tasks, and the tasks that were cancelled because of them`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      // Task n ended in second n, and each of the first 1,200 tasks cancelled one more task.
      try tables.database().execute(
        """
        insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
          created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
          retry_count, interruption_count, put_off, finished_date, cause)
        select lpad(to_hex(n + along * 100000), 32, '0')::uuid, 'A', '', '{}', 'json', 1, 0,
          timestamptz '2026-01-01', timestamptz '2026-01-01', true, false, 'allSucceeded',
          'cancelled', 0, 0, false, timestamptz '2026-01-01 00:00:00+00' + n * interval '1 second',
          case when along = 1 then lpad(to_hex(n), 32, '0')::uuid end
        from generate_series(1, 5000) as n cross join generate_series(0, 1) as along
        where along = 0 or n <= 1200
        """
      )
      let start = Date(timeIntervalSince1970: 1_767_225_600)
      func prune(before: Double?, latest: Int?) async throws -> [ChangeOutcome] {
        let change = TaskChange.prune(
          .cancelled,
          endedBefore: before.map { start + $0 },
          keepingLatest: latest,
          now: start + 10_000
        )
        return try await store.apply([change], durability: .durable)
      }
      #expect(try await prune(before: 1_001, latest: nil) == [.done])
      #expect(try await store.count(matching: TaskFilter()) == 4_000 + 200)
      #expect(try await prune(before: 3_001, latest: 1_500) == [.done])
      let left = try await store.tasks(matching: TaskFilter(), after: nil, limit: 10_000)
      #expect(left.map(\.id.low) == (3_501...5_000).map(UInt64.init))
      try await store.close()
    }
  }

  @Test func `changes that are sent together with the commit all fail if one task is not plain`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      let plain = TaskRecord.numbered(1)
      let keyed = TaskRecord.numbered(2, uniqueKey: "key")
      let lost = TaskRecord.numbered(3)
      _ = try await store.insert(plain, keyed, lost)
      let claimed = try await store.claim(.ofA(limit: 3)).tasks.map(\.lease)
      let leases = Dictionary(uniqueKeysWithValues: claimed.map { ($0.id, $0) })
      let (first, second) = try (#require(leases[plain.id]), #require(leases[keyed.id]))
      let stale = Lease(id: lost.id, token: try #require(leases[lost.id]).token &+ 1)

      // Each of these batches fails as a whole; nothing is stored.
      let own = Tables(try tables.database(), isShared: true)
      for changes: [TaskChange] in [
        [.insert(lost, onDuplicate: .keep)],
        // More insertions than are sent separately.
        (0...Tables.mostSeparateInsertions).map {
          .insert(TaskRecord.numbered(3 + $0), onDuplicate: .keep)
        },
        [first, stale].map(Self.success), [first, second].map(Self.success),
      ] {
        let group = BatchGroup([try changes.map(PreparedChange.init)])
        try own.send(try #require(group.plainChanges()))
        let failure = #expect(throws: PostgreSQLFailure.self) { try own.database.flush() }
        #expect(failure?.isMismatch == true)
      }
      #expect(try await store.count(matching: .unfinished) == 3)

      // The store then checks the changes, and returns an outcome for each.
      let ends = [first, second, stale].map(Self.success)
      #expect(try await store.apply(ends, durability: .durable) == [.done, .done, .stale])
      #expect(try await store.insert(lost) == [.done])
      #expect(try await store.tasks(matching: .unfinished).map(\.id) == [lost.id])
      try await store.close()
    }
  }

  private static func success(_ lease: Lease) -> TaskChange {
    .succeed(lease, at: Date(timeIntervalSince1970: 1_800_000_001), retains: false)
  }

  @Test func `only insertions with the same key wait for each other`() async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      func plan(_ number: Int, key: String, name: String = "A") throws -> LockPlan {
        let record = TaskRecord.numbered(number, name: name, uniqueKey: key)
        return LockPlan([[try PreparedChange(.insert(record, onDuplicate: .keep))]])
      }
      let first = Tables(try tables.database(), isShared: true)
      try first.database.send("begin")
      try first.lock(plan(1, key: "a"))
      try first.database.flush()
      let second = Tables(try tables.database(), isShared: true)
      try second.database.execute("set lock_timeout = '100ms'; begin")
      try second.lock(plan(2, key: "b"))
      try second.lock(plan(2, key: "a", name: "B"))
      try second.database.flush()
      try second.lock(plan(2, key: "a"))
      let failure = #expect(throws: PostgreSQLFailure.self) { try second.database.flush() }
      #expect(failure?.state == "55P03")
      try await store.close()
    }
  }

  @Test func `a session sets keep-alives, so that the server detects lost clients`() async throws {
    try await withTables { tables in
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      let names = try database.allRows(
        "select name from pg_settings where name like 'tcp_%' and source = 'session' order by name"
      ) { $0.text(0) }
      #expect(
        names == [
          "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval",
          "tcp_user_timeout",
        ]
      )
    }
  }

  @Test func `opening an open store does not contact the server`() async throws {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.end()
      try await store.open()
      // A call that needs the server fails, because the server is unavailable.
      #expect(await store.error { _ = try await $0.count(matching: TaskFilter()) } != nil)
    }
  }

  @Test func `one batch stores the ends of a thousand attempts, except the stale ends`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      let records = (1...1_000).map { TaskRecord.numbered($0) }
      _ = try await store.apply(
        records.map { .insert($0, onDuplicate: .keep) },
        durability: .durable
      )
      let leases = try await store.claim(.ofA(limit: 1_000)).tasks.map(\.lease)
      #expect(leases.count == 1_000)
      // The last lease has the token of another task, which must not count for the second task.
      _ = try await store.apply([.release(leases[0])], durability: .durable)
      let again = try await store.claim(.ofA(limit: 1)).tasks.map(\.lease)
      #expect(again.map(\.id) == [leases[0].id])
      let date = Date(timeIntervalSince1970: 1_900_000_001)
      let other = Lease(id: leases[1].id, token: again[0].token)
      let ends = (leases.filter { $0.id != leases[1].id } + [again[0], other]).map { lease in
        TaskChange.succeed(lease, at: date, retains: false)
      }
      let outcomes = try await store.apply(ends, durability: .durable)
      #expect(outcomes.filter { $0 == .stale }.count == 2)
      #expect(outcomes.first == .stale && outcomes.last == .stale)
      #expect(try await store.tasks(matching: TaskFilter()).map(\.id) == [leases[1].id])
      try await store.close()
    }
  }

  /// If pruning did not wait, a task that another session adds at the same time might never run.
  @Test(.timeLimit(.minutes(2)))
  func `pruning waits for other sessions that change the order keys of the pruned tasks`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      let first = TaskRecord.numbered(1)
      var second = TaskRecord.numbered(2, orderKey: "k", blocksOrderOnFailure: true)
      second.dependencies.tasks = [first.id]
      _ = try await store.insert(first, second)
      let cancellation = TaskChange.cancel(.unclaimed(first.id), at: Date(), retains: true)
      let outcomes = try await store.apply([cancellation], durability: .durable)
      #expect(outcomes == [.doneWithConsequences(Consequences(tasks: [second.id]))])
      let database = try tables.database()
      let lock = """
        hashtext('orders ' || current_schema() || '.' || $1), hashtext(chr(1) || 'k') & 4095
        """
      try database.execute("begin")
      #expect(try database.hasRow("select pg_advisory_xact_lock(\(lock))", .text(tables.prefix)))
      let prune = TaskChange.prune(
        .cancelled,
        endedBefore: nil,
        keepingLatest: 0,
        now: Date(),
        queue: ""
      )
      let ends = Log<String>()
      async let pruning = {
        defer { ends.add("pruned") }
        return try await store.apply([prune], durability: .durable)
      }()
      let waits = """
        select from pg_locks where locktype = 'advisory' and not granted
          and (classid, objid) in (select kind::oid, number::oid
            from (select \(lock)) as lock (kind, number))
        """
      while try !database.hasRow(waits, .text(tables.prefix)) { try #require(ends.entries.isEmpty) }
      try database.execute("commit")
      #expect(try await pruning == [.done])
      #expect(try await store.count(matching: TaskFilter()) == 0)
      try await store.close()
    }
  }
}
#endif
