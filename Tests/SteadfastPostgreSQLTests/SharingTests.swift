#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

private struct Count: TaskPayload { var number: Int }

/// Several stores on the same tables.
@Suite(.onServer)
struct PostgreSQLSharingTests {
  @Test(.timeLimit(.minutes(5)))
  func `a change by another store sends a hint`() async throws {
    try await withTables { tables in
      let (first, second) = (tables.store(), tables.store())
      let hints = try #require(first.hints)
      try await first.open()
      var iterator = hints.makeAsyncIterator()
      // The first hint says that the store may have missed changes before it listened.
      #expect(await iterator.next() != nil)
      _ = try await second.insert(.numbered(1))
      #expect(await iterator.next() != nil)
      try await first.close()
      #expect(await iterator.next() == nil)
      // Statements of other connections can add tasks even to an unshared store.
      #expect(tables.store(sharing: nil).hints != nil)
      try await second.close()
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `ending a task sends a hint if another task becomes available`() async throws {
    try await withTables { tables in
      let (first, second) = (tables.store(), tables.store())
      let records = [TaskRecord.numbered(1, orderKey: "k"), .numbered(2, orderKey: "k")]
      _ = try await second.insert(records[0], records[1])
      let lease = try #require(try await second.claim(.ofA()).tasks.first?.lease)
      // The first hint says that the store may have missed changes before it listened.
      let hints = try #require(first.hints)
      try await first.open()
      var iterator = hints.makeAsyncIterator()
      #expect(await iterator.next() != nil)
      let end = TaskChange.succeed(lease, at: Date(), retains: false)
      #expect(try await second.apply([end], durability: .durable) == [.done])
      #expect(await iterator.next() != nil)
      #expect(try await first.claim(.ofA()).tasks.map(\.record.id) == [records[1].id])
      for store in [first, second] { try await store.close() }
    }
  }

  @Test func `two queues on the same tables perform each task only once`() async throws {
    try await withTables { tables in
      let performed = Log<Int>()
      let stores = (0..<2).map { _ in
        tables.store(sharing: StoreSharing(pollInterval: .seconds(60)))
      }
      let queues = stores.map { store in
        TaskQueue(
          persistence: store,
          configuration: TaskQueueConfiguration(succeededRetention: .forever)
        )
      }
      for queue in queues {
        await queue.register(Count.self) { count, _ in performed.add(count.number) }
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for queue in queues { group.addTask { try await queue.run() } }
        let tasks = try await withThrowingTaskGroup(of: EnqueuedTask.self) { enqueuing in
          for number in 0..<100 {
            enqueuing.addTask { try await queues[number % 2].enqueue(Count(number: number)) }
          }
          return try await enqueuing.reduce(into: []) { $0.append($1) }
        }
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
        group.cancelAll()
      }
      #expect(performed.entries.sorted() == Array(0..<100))
      for store in stores { try await store.close() }
    }
  }

  @Test(.timeLimit(.minutes(2)))
  func `a store whose writing session was terminated still locks out an unshared store`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      // The store connects for writing first, and for claiming later.
      try await store.open()
      let database = try tables.database()
      let sessions = try database.allRows(
        """
        select pid::bigint from pg_locks where locktype = 'advisory' and granted
          and (classid::bigint << 32) | objid::bigint
            = hashtextextended(current_schema() || '.' || $1, 1)
        """,
        .text(tables.prefix)
      ) { $0.integer(0) }
      #expect(sessions.count == 1)
      let writer = try #require(sessions.first)
      #expect(try await store.claim(.ofA()).tasks.isEmpty)
      while try database.hasRow(
        """
        select pg_terminate_backend(pid) from pg_stat_activity
        where pid = $1::bigint::integer
        """,
        .integer(writer)
      ) {}
      #expect(await tables.store(sharing: nil).openingError()?.code == .inUse)
      #expect(try await store.insert(.numbered(1)) == [.done])
      try await store.close()
      let alone = tables.store(sharing: nil)
      #expect(await alone.openingError() == nil)
      try await alone.close()
    }
  }

  @Test func `the settings of a session keep the server from terminating idle sessions`()
    async throws
  {
    try await withTables { tables in
      let database = try tables.database()
      let name = "idle_session_timeout"
      guard database.serverVersion >= 140_000 else { return }
      try database.execute("set \(name) = '1h'")
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      #expect(try database.first("select current_setting('\(name)')") { $0.text(0) } == "0")
    }
  }

  @Test func `a call that fails does not make concurrent calls fail`() async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      try tables.database().execute(
        """
        create function steadfast_refuse() returns trigger language plpgsql
          as $$ begin raise exception 'not this one'; end $$;
        create trigger refusal before insert on steadfast_task for each row
          when (new.name = 'bad') execute function steadfast_refuse();
        """
      )
      let results = await withTaskGroup(of: (Int, Bool).self) { group in
        for number in 1...60 {
          group.addTask {
            let name = number % 3 == 0 ? "bad" : "A"
            do {
              return (number, try await store.insert(.numbered(number, name: name)) == [.done])
            } catch {
              return (number, false)
            }
          }
        }
        return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
      }
      #expect(results == Dictionary(uniqueKeysWithValues: (1...60).map { ($0, $0 % 3 != 0) }))
      #expect(try await store.count(matching: .unfinished) == 40)
      try await store.close()
      try tables.database().execute("drop function steadfast_refuse() cascade")
    }
  }

  @Test(arguments: [0, 1, 2_048, 1_000_000])
  func `short and long payloads are read back unchanged`(_ count: Int) async throws {
    try await withTables { tables in
      let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) }
      let store = tables.store()
      _ = try await store.insert(.numbered(1, bytes: bytes), .numbered(2))
      let update = TaskUpdate(payload: StoredPayload(bytes, format: .binary))
      let change = TaskChange.update(TaskRecord.numbered(2).id, update)
      #expect(try await store.apply([change], durability: .durable) == [.done])
      let claim = try await store.claim(.ofA())
      #expect(try claim.tasks.map { try $0.record.payload.bytes() } == [bytes, bytes])
      try await store.close()
    }
  }

  @Test func `sessions that add and end tasks with the same keys do not conflict`() async throws {
    try await withTables { tables in
      let stores = (0..<3).map { _ in tables.store() }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for (number, store) in stores.enumerated() {
          group.addTask {
            for round in 0..<40 {
              let record = TaskRecord.numbered(
                number * 1_000 + round,
                uniqueKey: "key \(round % 3)",
                orderKey: "order \(round % 2)"
              )
              _ = try await store.apply(
                [.insert(record, onDuplicate: round % 2 == 0 ? .keep : .replace)],
                durability: .durable
              )
              for task in try await store.claim(.ofA()).tasks {
                let change = TaskChange.succeed(task.lease, at: Date(), retains: false)
                #expect(try await store.apply([change], durability: .durable) != [.stale])
              }
            }
          }
        }
        try await group.waitForAll()
      }
      while true {
        let claim = try await stores[0].claim(.ofA())
        guard !claim.tasks.isEmpty else { break }
        let ends = claim.tasks.map { TaskChange.succeed($0.lease, at: Date(), retains: false) }
        _ = try await stores[0].apply(ends, durability: .durable)
      }
      // No task remains that can't be claimed because of its order key or unique key.
      #expect(try await stores[1].count(matching: TaskFilter()) == 0)
      for store in stores { try await store.close() }
    }
  }
}
#endif
