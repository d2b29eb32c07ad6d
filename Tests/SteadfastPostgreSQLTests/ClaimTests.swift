#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

@Suite(.onServer)
struct PostgreSQLClaimTests {
  /// Adds tasks with three priorities, in the order of their dates; by default, of four names.
  private func addTasks(_ count: Int, names: Int = 4, to database: Connection) throws {
    _ = try database.run(
      """
      insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
        created_date, available_date, uses_backoff, holds_order, dependency_rule, state,
        retry_count, interruption_count, put_off)
      select gen_random_uuid(), chr((65 + n % $2::bigint)::integer), '', '{}', 'json', 1, n % 3,
        timestamptz '2026-01-01' + n * interval '1 second',
        timestamptz '2026-01-01' + n * interval '1 second',
        true, false, 'allSucceeded', 'waiting', 0, 0, false
      from generate_series(1, $1::bigint) as n
      """,
      .integer(count),
      .integer(names)
    )
  }

  /// Returns the number of blocks of tables and indexes that a claim, by default of eight tasks,
  /// reads, and rolls the claim back.
  private func blocksReadByClaim(
    _ request: ClaimRequest? = nil,
    on database: Connection,
    in tables: TestTables,
    from cursors: ClaimCursors.Cursors? = nil,
    check: (Claim) -> Void = { claim in
      #expect(claim.tasks.count == 8)
      #expect(claim.tasks.allSatisfy { $0.record.priority.rawValue == 2 })
    }
  ) throws -> Int {
    func blocksSoFar() throws -> Int {
      try database.first(
        """
        select sum(pg_stat_get_xact_blocks_fetched(oid))::bigint from pg_class
        where relname like $1::text and relkind in ('r', 'i')
        """,
        .text(tables.prefix + "%")
      ) { $0.integer(0) } ?? 0
    }
    let eight = ClaimRequest(
      limit: 8,
      names: ["A": 8, "B": 8],
      otherNames: 8,
      now: Date(timeIntervalSince1970: 1_900_000_000),
      leaseDuration: .seconds(60)
    )
    try database.send("begin")
    let before = try blocksSoFar()
    check(try Tables(database, isShared: true).claim(request ?? eight, from: cursors))
    let blocks = try blocksSoFar() - before
    try database.send("rollback")
    try database.flush()
    return blocks
  }

  /// Returns the number of blocks that a claim reads among `count` tasks.
  private func blocksRead(amongTasks count: Int, names: Int = 4) async throws -> Int {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      try addTasks(count, names: names, to: database)
      return try blocksReadByClaim(on: database, in: tables)
    }
  }

  /// Returns the number of blocks that a claim reads if the index has entries of `count` dead rows.
  ///
  /// `all` is the number if the claim reads from the first entry. `fromCursors` is the number if
  /// the claim reads from cursors at the first tasks.
  private func blocksRead(besidesDeadRows count: Int) async throws -> (all: Int, fromCursors: Int) {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      try addTasks(count + 400, to: database)
      let reader = try tables.database()
      try reader.execute(
        "begin isolation level repeatable read; select count(*) from steadfast_task"
      )
      let dead = try database.run(
        """
        delete from steadfast_task where available_date
          <= timestamptz '2026-01-01' + $1::bigint * interval '1 second'
        """,
        .integer(count)
      )
      #expect(dead == count)
      let cursors = try Tables.firstCursors(ofQueue: "", in: database)
      #expect(cursors.count == 12)
      let all = try blocksReadByClaim(on: database, in: tables)
      let fromCursors = try blocksReadByClaim(on: database, in: tables, from: cursors)
      try reader.execute("rollback")
      return (all, fromCursors)
    }
  }

  @Test func `a claim reads as few blocks among many tasks as among few`() async throws {
    let few = try await blocksRead(amongTasks: 400)
    let many = try await blocksRead(amongTasks: 40_000)
    // The indexes are one or two blocks deeper, and each lane is searched three times.
    #expect(few > 20)
    #expect(many <= few * 13 / 10, "\(few) and \(many) blocks")
  }

  @Test func `a claim reads as few blocks among tasks of many names as among tasks of few`()
    async throws
  {
    let few = try await blocksRead(amongTasks: 6_000)
    let many = try await blocksRead(amongTasks: 6_000, names: 3_000)
    #expect(many <= few * 13 / 10, "\(few) and \(many) blocks")
  }

  @Test func `a claim for limited names reads no tasks with other names`() async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      try addTasks(20_000, names: 1, to: database)
      try database.execute("analyze steadfast_task")
      let now = Date(timeIntervalSince1970: 1_900_000_000)
      let blocks = try blocksReadByClaim(
        ClaimRequest(limit: 8, names: ["B": 7], now: now),
        on: database,
        in: tables
      ) { #expect($0.tasks.isEmpty) }
      #expect(blocks < 100, "\(blocks) blocks")
      try await store.close()
    }
  }

  @Test func `claims use cursors while most of the first tasks must be skipped`() async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let database = try tables.database()
      try addTasks(4_000, to: database)
      let now = Date(timeIntervalSince1970: 1_900_000_000)
      let names = ClaimRequest(limit: 8, names: ["A": 0, "B": 8], otherNames: .max, now: now)
      #expect(try Tables.skippedCount(by: names, in: database) == 250)
      let typed = ClaimRequest(limit: 8, names: ["A": 0, "B": 8], now: now)
      #expect(try Tables.skippedCount(by: typed, in: database) == 750)
      let claim = try await store.claim(
        ClaimRequest(limit: 8, names: ["A": 0, "B": 1, "C": 2], otherNames: .max, now: now)
      )
      #expect(claim.tasks.map(\.record.name) == ["C", "B", "D", "C", "D", "D", "D", "D"])
      try await store.close()
    }
  }

  @Test func `a claim that reads from cursors reads no dead rows`() async throws {
    let few = try await blocksRead(besidesDeadRows: 400)
    let many = try await blocksRead(besidesDeadRows: 20_000)
    #expect(few.fromCursors > 20)
    #expect(many.fromCursors <= few.fromCursors * 13 / 10, "\(few) and \(many) blocks")
    // Proves that there are dead rows.
    #expect(many.all > many.fromCursors * 3, "\(many) blocks")
  }

  @Test(.timeLimit(.minutes(5)))
  func `a store that reads from cursors finds a task that another store releases before a cursor`()
    async throws
  {
    try await withTables { tables in
      let store = PostgreSQLStore(
        tables.connection,
        prefix: tables.prefix,
        sharing: StoreSharing(),
        clockOffset: nil,
        alwaysKeepsCursors: true
      )
      let other = tables.store()
      let early = TaskRecord.numbered(9)
      _ = try await other.insert(early)
      let held = try #require(try await other.claim(.ofA()).tasks.first)
      // Claims other tasks until the cursor of the lane is after the task with the number 9.
      for number in 1...3 { _ = try await store.insert(.numbered(number)) }
      #expect(try await store.claim(.ofA(limit: 8)).tasks.count == 3)
      for _ in 0..<3 { #expect(try await store.claim(.ofA(limit: 8)).tasks.isEmpty) }
      #expect(try await other.apply([.release(held.lease)], durability: .durable) == [.done])
      // The next scan follows after ten times the duration of the last scan.
      var found: [ClaimedTask] = []
      while found.isEmpty { found = try await store.claim(.ofA(limit: 8)).tasks }
      #expect(found.map(\.record.id) == [early.id])
      for store in [store, other] { try await store.close() }
    }
  }

  @Test(arguments: [false, true])
  func `a task that was created by a clock that is ahead is claimed at its date`(
    keepsCursors: Bool
  ) async throws {
    try await withTables { tables in
      let store = PostgreSQLStore(
        tables.connection,
        prefix: tables.prefix,
        sharing: nil,
        clockOffset: nil,
        alwaysKeepsCursors: keepsCursors
      )
      let task = TaskRecord.numbered(1)
      _ = try await store.insert(task)
      var request = ClaimRequest.ofA(leaseDuration: nil)
      request.now = task.createdDate - 5
      let claim = try await store.claim(request)
      #expect(claim.tasks.isEmpty)
      #expect(claim.nextDate == task.createdDate)
      try await store.close()
    }
  }

  @Test func `two concurrent claims get different tasks, and lock no other tasks`() async throws {
    try await withTables { tables in
      let store = tables.store()
      for number in 1...6 { _ = try await store.insert(.numbered(number)) }
      let databases = try (0..<2).map { _ in try tables.database() }
      var claims: [Claim] = []
      for database in databases {
        try database.send("begin")
        claims.append(try Tables(database, isShared: true).claim(.ofA(limit: 2)))
      }
      #expect(
        claims.map { $0.tasks.map(\.record.id) } == [
          [TaskRecord.numbered(1).id, TaskRecord.numbered(2).id],
          [TaskRecord.numbered(3).id, TaskRecord.numbered(4).id],
        ]
      )
      // A third session gets the remaining tasks, and retries soon if others have locked all tasks.
      #expect(try await store.claim(.ofA(limit: 8)).tasks.count == 2)
      let claim = try await store.claim(.ofA(limit: 8))
      #expect(claim.tasks.isEmpty)
      #expect(claim.nextDate == ClaimRequest.ofA().now)
      for database in databases { try database.execute("rollback") }
      #expect(try await store.claim(.ofA(limit: 8)).tasks.count == 4)
      try await store.close()
    }
  }

  @Test func `a task that can't be read is parked, and the others are claimed`() async throws {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1), .numbered(2))
      let database = try tables.database()
      _ = try database.run(
        "update steadfast_task set format = 'later' where id = $1",
        .id(TaskRecord.numbered(1).id)
      )
      let claim = try await store.claim(.ofA())
      #expect(claim.tasks.map(\.record.id) == [TaskRecord.numbered(2).id])
      let error = await store.error { _ = try await $0.tasks(matching: TaskFilter()) }
      #expect(error?.code == .damaged)
      #expect(error?.message.contains("the row of the task \(TaskRecord.numbered(1).id)") == true)
      try database.execute("update steadfast_task set format = 'json'")
      _ = try await store.apply([.unpark(name: "A")], durability: .durable)
      #expect(try await store.claim(.ofA()).tasks.map(\.record.id) == [TaskRecord.numbered(1).id])
      try await store.close()
    }
  }
}
#endif
