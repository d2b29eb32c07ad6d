#if PostgreSQL
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

private struct Count: TaskPayload { var number: Int }

/// Connections that are lost, at worst while a change is being stored.
@Suite(.onServer, .serialized, .timeLimit(.minutes(5)))
struct LostConnectionTests {
  /// Calls `body` with a proxy before the server, and the connection string that leads there.
  private func withProxy(_ body: (Proxy, TestTables) async throws -> Void) async throws {
    let direct = try #require(Server.connection)
    let host = try #require(
      try ConnectionString(direct).parameters.first { $0.name == "host" && $0.value.hasPrefix("/") }
    ).value
    try await withTables { tables in
      try await withTemporaryFolder { folder in
        let proxy = try Proxy(in: folder, to: "\(host)/.s.PGSQL.5432")
        defer { proxy.end() }
        let through = TestTables(
          connection: "\(direct) host=\(folder.path)",
          prefix: tables.prefix
        )
        try await body(proxy, through)
      }
    }
  }

  @Test func `a commit whose answer is lost is not guessed: insertions`() async throws {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.plan((0..<60).map { [nil, .before, .after][$0 % 3] })
      for number in 0..<60 {
        #expect(try await store.insert(.numbered(number)) == [.done])
        // With a key, an insertion that was made twice would be a duplicate of itself.
        let keyed = TaskRecord.numbered(1_000 + number, uniqueKey: "key \(number)")
        #expect(try await store.insert(keyed) == [.done])
      }
      #expect(try await store.count(matching: .unfinished) == 120)
      #expect(proxy.count(of: .before) >= 20)
      #expect(proxy.count(of: .after) >= 20)
    }
  }

  @Test func `a commit whose answer is lost is not guessed: values that are compared`()
    async throws
  {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.plan((0..<80).map { [nil, .before, .after, .hold][$0 % 4] })
      var value: [UInt8]?
      for number in 0..<60 {
        let next: [UInt8] = [UInt8(number)]
        let change = TaskChange.setValue(named: "count", from: value, to: next)
        #expect(try await store.apply([change], durability: .durable) == [.done])
        value = next
      }
      #expect(try await store.value(named: "count") == [59])
      for cut in Proxy.Cut.allCases { #expect(proxy.count(of: cut) >= 20, "\(cut)") }
    }
  }

  @Test(arguments: [nil, StoreSharing()])
  func `a commit whose answer is lost is not guessed: claims and ends`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withProxy { proxy, tables in
      let store = tables.store(sharing: sharing)
      let records = (0..<60).map { TaskRecord.numbered($0) }
      let insertions = records.map { TaskChange.insert($0, onDuplicate: .keep) }
      _ = try await store.apply(insertions, durability: .durable)
      proxy.plan((0..<120).map { [nil, .before, .after, nil, nil][$0 % 5] })
      var seen: [TaskID] = []
      while true {
        let claim = try await store.claim(.ofA(leaseDuration: sharing?.leaseDuration))
        guard !claim.tasks.isEmpty else { break }
        for task in claim.tasks {
          seen.append(task.record.id)
          let end = TaskChange.succeed(task.lease, at: Date(), retains: false)
          #expect(try await store.apply([end], durability: .durable) == [.done])
        }
      }
      #expect(seen == records.map(\.id))
      #expect(try await store.count(matching: TaskFilter()) == 0)
      #expect(proxy.count(of: .before) >= 10)
      #expect(proxy.count(of: .after) >= 10)
    }
  }

  /// Ends all sessions on the server but the test's own, again and again, until `body` returns.
  private func endingSessions(
    of tables: TestTables,
    while body: () async throws -> Void
  ) async throws {
    let ended = Log<Bool>()
    Thread.detachNewThread { [tables] in
      guard let database = try? tables.database() else { return }
      while ended.entries.isEmpty {
        _ = try? database.has(
          """
          select pg_terminate_backend(pid), pg_sleep(0.2) from pg_stat_activity
          where application_name = $1::text and pid <> pg_backend_pid()
          """,
          .text(tables.prefix)
        )
      }
    }
    defer { ended.add(true) }
    try await body()
  }

  @Test func `a queue whose sessions are ended performs each task once`() async throws {
    try await withTables { tables in
      let connection = "\(tables.connection) application_name=\(tables.prefix)"
      let store = PostgreSQLStore(connection, prefix: tables.prefix)
      try await performTasks(on: store, 200) {
        try await endingSessions(of: tables, while: $0)
      }
    }
  }

  @Test(.enabled(if: Server.restartCommand != nil))
  func `a server that is restarted in mid-work stops no worker`() async throws {
    let command = try #require(Server.restartCommand)
    try await withTables(on: Server.restarted) { tables in
      try await performTasks(on: tables.store(), 300) { body in
        let restarts = Thread {
          for _ in 0..<3 {
            let process = Process()
            process.executableURL = URL(filePath: "/bin/sh")
            process.arguments = ["-c", command]
            try? process.run()
            process.waitUntilExit()
          }
        }
        restarts.start()
        try await body()
      }
    }
  }

  /// Enqueues and performs tasks while something happens, and checks that each was performed.
  private func performTasks(
    on store: PostgreSQLStore,
    _ count: Int,
    _ during: (() async throws -> Void) async throws -> Void
  ) async throws {
    let performed = Log<Int>()
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4, maxInterruptions: 1_000)
    )
    await queue.register(Count.self) { count, _ in performed.add(count.number) }
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await during {
        var tasks: [EnqueuedTask] = []
        for number in 0..<count { tasks.append(try await queue.enqueue(Count(number: number))) }
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
      }
      group.cancelAll()
    }
    // A session that ends after an attempt and before its end was stored makes another attempt.
    #expect(Set(performed.entries) == Set(0..<count))
    #expect(try await store.count(matching: .unfinished) == 0)
    try await store.close()
  }
}
#endif
