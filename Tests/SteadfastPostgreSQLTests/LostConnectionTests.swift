#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

private struct Count: TaskPayload { var number: Int }

/// Connections that are lost, in the worst case during a commit.
@Suite(.onServer, .serialized, .timeLimit(.minutes(5)))
struct LostConnectionTests {
  @Test func `insertions are stored once although responses to commits are lost`() async throws {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.planCuts((0..<60).map { [nil, .before, .after][$0 % 3] })
      for number in 0..<60 {
        #expect(try await store.insert(.numbered(number)) == [.done])
        // With a key, a repeated insertion would be a duplicate of itself.
        let keyed = TaskRecord.numbered(1_000 + number, uniqueKey: "key \(number)")
        #expect(try await store.insert(keyed) == [.done])
      }
      #expect(try await store.count(matching: .unfinished) == 120)
      // Only the row of each session's last request is stored.
      let count = try tables.database().first("select count(*) from steadfast_request") {
        $0.integer(0)
      }
      #expect(count == 1)
      #expect(proxy.count(of: .before) >= 20)
      #expect(proxy.count(of: .after) >= 20)
    }
  }

  @Test func `values are compared and set once although responses to commits are lost`()
    async throws
  {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.planCuts((0..<80).map { [nil, .before, .after, .hold][$0 % 4] })
      var value: [UInt8]?
      for number in 0..<60 {
        let next: [UInt8] = [UInt8(number)]
        let change = TaskChange.setValue(named: "count", from: value, to: next)
        #expect(try await store.apply([change], durability: .durable) == [.done])
        value = next
      }
      #expect(try await store.value(named: "count") == [59])
      for cut in [Proxy.Cut.before, .after, .hold] { #expect(proxy.count(of: cut) >= 20, "\(cut)") }
    }
  }

  @Test(arguments: [nil, StoreSharing()])
  func `tasks are claimed and ended once although responses to commits are lost`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withProxy { proxy, tables in
      let store = tables.store(sharing: sharing)
      let records = (0..<60).map { TaskRecord.numbered($0) }
      let insertions = records.map { TaskChange.insert($0, onDuplicate: .keep) }
      _ = try await store.apply(insertions, durability: .durable)
      proxy.planCuts((0..<120).map { [nil, .before, .after, nil, nil][$0 % 5] })
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

  /// Counts the failures that a thread has caused during a test, and records when to stop.
  private final class CausedFailures: Sendable {
    private let counts = Log<Int>()
    private let ends = Log<Bool>()

    var isOver: Bool { !ends.entries.isEmpty }
    var count: Int { counts.entries.reduce(0, +) }

    func add(_ count: Int) { counts.add(count) }
    func end() { ends.add(true) }
  }

  @Test func `a queue performs each task although its sessions are terminated`() async throws {
    try await withTables { tables in
      let connection = "\(tables.connection) application_name=\(tables.prefix)"
      let store = PostgreSQLStore(connection, prefix: tables.prefix)
      let failures = CausedFailures()
      let performed = Log<Int>()
      Thread.detachNewThread {
        guard let database = try? tables.database() else { return }
        // Sessions are terminated only when a task has begun since the last time. On a slow
        // machine, no session would otherwise live long enough for a statement.
        var count = -1
        while !failures.isOver {
          let isMoving = performed.entries.count > count
          count = performed.entries.count
          let ended = try? database.first(
            """
            select count(pg_terminate_backend(pid)), pg_sleep(0.1) from pg_stat_activity
            where application_name = $1::text
            """,
            .text(isMoving ? tables.prefix : "none of \(tables.prefix)")
          ) { $0.integer(0) }
          failures.add(ended ?? 0)
        }
      }
      try await performTasks(on: store, until: { failures.count >= 20 }, performed: performed)
      failures.end()
    }
  }

  @Test(.enabled(if: Server.restartCommand != nil))
  func `a queue performs each task although the server restarts`() async throws {
    let command = try #require(Server.restartCommand)
    try await withTables(on: Server.restarted) { tables in
      let failures = CausedFailures()
      Thread.detachNewThread {
        for _ in 0..<3 {
          let process = Process()
          process.executableURL = URL(filePath: "/bin/sh")
          process.arguments = ["-c", command]
          try? process.run()
          process.waitUntilExit()
          failures.add(process.terminationStatus == 0 ? 1 : 0)
        }
        failures.end()
      }
      try await performTasks(on: tables.store(), until: { failures.isOver })
      #expect(failures.count == 3)
    }
  }

  @Test(.enabled(if: Server.restartCommand != nil))
  func `a queue performs each task although the server is temporarily read-only`() async throws {
    try await withTables(on: Server.restarted) { tables in
      let failures = CausedFailures()
      let store = tables.store()
      try await store.open()
      Thread.detachNewThread {
        guard let database = try? tables.database(),
          (try? database.execute("set default_transaction_read_only = off")) != nil
        else { return failures.end() }
        for state in ["on", "off", "on", "off"] {
          let statements = [
            "alter system set default_transaction_read_only = \(state)",
            "select pg_reload_conf()", "select pg_sleep(0.5)",
          ]
          let isDone = (try? statements.forEach(database.execute)) != nil
          failures.add(isDone ? 1 : 0)
        }
        failures.end()
      }
      try await performTasks(on: store, until: { failures.isOver })
      #expect(failures.count == 4)
    }
  }

  /// Enqueues and performs tasks until an event occurs, and checks that each task was performed.
  private func performTasks(
    on store: PostgreSQLStore,
    until isEnough: @escaping @Sendable () -> Bool,
    performed: Log<Int> = Log()
  ) async throws {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4, maxInterruptions: 1_000)
    )
    await queue.register(Count.self) { count, _ in performed.add(count.number) }
    var tasks: [EnqueuedTask] = []
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      while tasks.count < 100 || !isEnough() {
        try Task.checkCancellation()
        tasks.append(try await queue.enqueue(Count(number: tasks.count)))
      }
      for task in tasks { #expect(try await task.outcome() == .succeeded) }
      group.cancelAll()
    }
    // A task is performed again if its session ended before the task's end was stored.
    #expect(Set(performed.entries) == Set(tasks.indices))
    #expect(try await store.count(matching: .unfinished) == 0)
    try await store.close()
  }
}
#endif
