#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Calls that must not wait while transactions of other programs lock tasks and keys.
@Suite(.onServer, .timeLimit(.minutes(2)))
struct LockedTaskTests {
  private let ids = (0...3).map { TaskRecord.numbered($0).id }

  private func extensions(of leases: [Lease]) -> [TaskChange] {
    leases.map { .extend($0, for: .seconds(10_000)) }
  }

  /// Returns the tasks whose leases last for more than an hour.
  private func tasksWithExtendedLeases(in database: Connection) throws -> [TaskID] {
    try database.ids(
      "select id from steadfast_task where lease_end > now() + interval '1 hour' order by id"
    )
  }

  /// Starts a transaction that locks a task, as another program would.
  private func transaction(locking id: TaskID, in tables: TestTables) throws -> Connection {
    let database = try tables.database()
    try database.execute("begin")
    #expect(try database.ids(Self.lockTask, .id(id)) == [id])
    return database
  }

  private static let lockTask = "select id from steadfast_task where id = $1 for update"

  // MARK: Extensions

  private enum Key: CaseIterable {
    case unique
    case order
  }

  @Test(arguments: Key.allCases)
  private func `a lease is extended while insertions wait for a key`(_ key: Key) async throws {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1))
      let leases = try await store.claim(.ofA()).tasks.map(\.lease)
      let isUnique = key == .unique
      let keyed = TaskRecord.numbered(
        2,
        uniqueKey: isUnique ? "key" : nil,
        orderKey: isUnique ? nil : "key"
      )
      let other = Tables(try tables.database(), isShared: true, locks: try locks(of: tables))
      try other.database.send("begin")
      try other.lock(LockPlan([[try PreparedChange(.insert(keyed, onDuplicate: .keep))]]))
      try other.database.flush()
      let ends = Log<String>()
      async let insertion = {
        defer { ends.add("inserted") }
        return try await store.insert(keyed)
      }()
      let database = try tables.database()
      let number = isUnique ? other.locks.keys : other.locks.orders
      while try !database.hasRow(Self.isWaitedFor, .integer(number)) {
        try #require(ends.entries.isEmpty)
      }
      let outcomes = try await store.apply(extensions(of: leases), durability: .relaxed)
      #expect(outcomes == [.done])
      #expect(ends.entries.isEmpty)
      #expect(try tasksWithExtendedLeases(in: database) == [ids[1]])
      try other.database.execute("commit")
      let inserted = try await insertion
      #expect(inserted == [.done])
      try await store.close()
    }
  }

  /// Returns the first numbers of the advisory locks of `tables`.
  private func locks(of tables: TestTables) throws -> Tables.Locks {
    try Session(DatabaseLocation(tables.connection, prefix: tables.prefix)) { _, _ in }
      .openedTables()
      .locks
  }

  @Test func `a locked task prevents only the extension of its own lease`() async throws {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1), .numbered(2), .numbered(3))
      let leases = try await store.claim(.ofA(limit: 3)).tasks.map(\.lease)
      #expect(leases.map(\.id) == Array(ids[1...]))
      let end = TaskChange.succeed(leases[2], at: Date(), retains: false)
      #expect(try await store.apply([end], durability: .durable) == [.done])
      let other = try transaction(locking: ids[1], in: tables)
      let changes = extensions(of: leases)
      let error = await store.error { _ = try await $0.apply(changes, durability: .relaxed) }
      #expect(error?.code == .busy)
      #expect(error?.message.contains("have locked 1 of the tasks whose claims") == true)
      #expect(try tasksWithExtendedLeases(in: tables.database()) == [ids[2]])
      try other.execute("rollback")
      let outcomes = try await store.apply(changes, durability: .relaxed)
      #expect(outcomes == [.done, .done, .stale])
      #expect(try tasksWithExtendedLeases(in: tables.database()) == [ids[1], ids[2]])
      try await store.close()
    }
  }

  @Test(arguments: [Durability.relaxed, .durable])
  func `the last of several extensions of a lease counts`(
    _ durability: Durability
  ) async throws {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1))
      let lease = try #require(try await store.claim(.ofA()).tasks.first?.lease)
      let stale = Lease(id: lease.id, token: lease.token &+ 1)
      let changes: [TaskChange] = [
        .extend(lease, for: .seconds(60)), .extend(stale, for: .seconds(60)),
        .extend(lease, for: .seconds(10_000)),
      ]
      let outcomes = try await store.apply(changes, durability: durability)
      #expect(outcomes == [.done, .stale, .done])
      #expect(try tasksWithExtendedLeases(in: tables.database()) == [ids[1]])
      try await store.close()
    }
  }

  // MARK: Expired leases

  private enum Held: CaseIterable {
    /// The task itself.
    case task
    /// The lock of its order key.
    case key
    /// An earlier task with the same order key, which must run next.
    case first
  }

  @Test(arguments: Held.allCases)
  private func `a locked task does not block the recovery of other tasks`(
    _ held: Held
  ) async throws {
    try await withTables { tables in
      let gone = tables.store()
      for number in 1...3 {
        _ = try await gone.insert(.numbered(number, orderKey: number < 3 ? "key" : nil))
      }
      let cancellation = TaskChange.cancel(.unclaimed(ids[1]), at: Date(), retains: true)
      #expect(try await gone.apply([cancellation], durability: .durable) == [.done])
      #expect(try await gone.claim(.ofA()).tasks.map(\.record.id) == [ids[2], ids[3]])
      let restart = TaskChange.restart(.unclaimed(ids[1]), availableDate: Date())
      #expect(try await gone.apply([restart], durability: .durable) == [.done])
      try await gone.close()
      try tables.database().execute(
        "update steadfast_task set lease_end = now() - interval '1 second' where state = 'running'"
      )
      let other = try transaction(locking: held == .task ? ids[2] : ids[1], in: tables)
      if held == .key {
        try other.execute("rollback; begin")
        let tables = Tables(other, isShared: true, locks: try locks(of: tables))
        try tables.lockOrderKeys(of: [ids[2]])
        try other.flush()
      }
      let store = tables.store()
      let claimed = try await store.claim(.ofA()).tasks
      #expect(claimed.map(\.record.id) == [ids[3]])
      #expect(claimed.map(\.record.interruptionCount) == [1])
      try other.execute("rollback")
      // The first claim of a store recovers expired leases.
      let next = tables.store()
      #expect(try await next.claim(.ofA()).tasks.map(\.record.id) == [ids[1]])
      for store in [store, next] { try await store.close() }
    }
  }

  private static let isWaitedFor = """
    select from pg_locks where locktype = 'advisory' and not granted
      and classid = $1::bigint::integer::oid
    """

  /// Repeatedly takes the lock of a task's order key, and keeps the lock until another session
  /// waits for it.
  private func repeatedlyLockOrderKey(
    of id: TaskID,
    on database: Connection,
    locks: Tables.Locks,
    until isOver: () -> Bool
  ) throws {
    while !isOver() {
      try database.execute("begin")
      try Tables(database, isShared: true, locks: locks).lockOrderKeys(of: [id])
      try database.flush()
      while try !isOver() && !database.hasRow(Self.isWaitedFor, .integer(locks.orders)) {}
      try database.execute("commit")
    }
  }

  @Test func `a task is recovered even if other sessions always wait for the task's order key`()
    async throws
  {
    try await withTables { tables in
      let gone = tables.store()
      _ = try await gone.insert(.numbered(1, orderKey: "key"))
      #expect(try await gone.claim(.ofA()).tasks.count == 1)
      try await gone.close()
      let database = try tables.database()
      try database.execute("update steadfast_task set lease_end = now() - interval '1 second'")
      let locks = try locks(of: tables)
      let isOver = Mutex(false)
      let ends = Log<String>()
      for _ in 1...2 {
        Thread.detachNewThread {
          do {
            try repeatedlyLockOrderKey(of: ids[1], on: tables.database(), locks: locks) {
              isOver.withLock(\.self)
            }
            ends.add("over")
          } catch {
            ends.add("\(error)")
          }
        }
      }
      defer { isOver.withLock { $0 = true } }
      while try !database.hasRow(Self.isWaitedFor, .integer(locks.orders)) {
        try #require(ends.entries.isEmpty)
      }
      // With a clock offset, every claim of a store recovers expired leases.
      let store = PostgreSQLStore(
        tables.connection,
        prefix: tables.prefix,
        sharing: StoreSharing(),
        clockOffset: { .zero }
      )
      var found: [ClaimedTask] = []
      for _ in 0..<50 where found.isEmpty { found = try await store.claim(.ofA()).tasks }
      #expect(found.map(\.record.interruptionCount) == [1])
      isOver.withLock { $0 = true }
      while ends.entries.count < 2 {}
      #expect(ends.entries == ["over", "over"])
      try await store.close()
    }
  }

  @Test
  func `requeuing the task of a lost claim waits for another session to release the order key`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1, orderKey: "key"), .numbered(2, orderKey: "key"))
      let cancellation = TaskChange.cancel(.unclaimed(ids[1]), at: Date(), retains: true)
      #expect(try await store.apply([cancellation], durability: .durable) == [.done])
      let locks = try locks(of: tables)
      let lost = Tables(try tables.database(), isShared: true, locks: locks)
      try lost.database.execute("begin")
      #expect(try lost.claim(.ofA()).tasks.map(\.record.id) == [ids[2]])
      try lost.database.execute("commit")
      let restart = TaskChange.restart(.unclaimed(ids[1]), availableDate: Date())
      #expect(try await store.apply([restart], durability: .durable) == [.done])

      let other = Tables(try tables.database(), isShared: true, locks: locks)
      try other.database.execute("begin")
      let group = BatchGroup([[try PreparedChange(cancellation)]])
      #expect(try other.apply(group) == [[.done]])
      try other.database.flush()
      let ends = Log<String>()
      let name = tables.prefix
      Thread.detachNewThread {
        do {
          let own = Tables(try tables.database(), isShared: true, locks: locks)
          try own.database.execute("set application_name = '\(name)'; begin")
          try own.requeueTasks(claimedWith: [17])
          try own.database.execute("commit")
          ends.add("requeued")
        } catch {
          ends.add("\(error)")
        }
      }
      let database = try tables.database()
      while try !database.hasRow(
        """
        select from pg_locks join pg_stat_activity using (pid)
        where not granted and application_name = $1::text
        """,
        .text(name)
      ) {
        try #require(ends.entries.isEmpty)
      }
      try other.database.execute("commit")
      while ends.entries.isEmpty {}
      #expect(ends.entries == ["requeued"])
      #expect(try await store.claim(.ofA()).tasks.map(\.record.id) == [ids[2]])
      try await store.close()
    }
  }
}
#endif
