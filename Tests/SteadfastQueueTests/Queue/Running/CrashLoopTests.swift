import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Job: TaskPayload { var number: Int }

/// Simulates processes that crash repeatedly while they perform the tasks of a file.
@Suite(.virtualTime) struct CrashLoopTests {
  /// How a process ended.
  private enum End { case crash, idle }

  private let clock: VirtualClock
  private let time: VirtualTime
  private let performed = Log<Int>()

  init() throws {
    time = try #require(VirtualTime.current)
    clock = time.clock
  }

  /// Runs one process until a handler ends it or no tasks remain.
  private func runProcess(
    at url: URL,
    crashesAfter lifetime: Duration? = nil,
    handler: @escaping @Sendable (Job, _ crash: @Sendable () -> Void) async throws -> Void
  ) async throws -> End {
    let store = JSONFileStore(at: url)
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: clock
    )
    let (ends, end) = AsyncStream<End>.makeStream()
    await queue.register(Job.self) { [performed] job, _ in
      try await handler(job) { end.yield(.crash) }
      performed.add(job.number)
    }
    let running = Task(executorPreference: time.executor) { try? await queue.run() }
    let waiting = Task(executorPreference: time.executor) { [clock] in
      if let lifetime {
        try await clock.sleep(for: lifetime)
        end.yield(.crash)
      } else {
        while try await queue.count > 0 { try await clock.sleep(for: .seconds(1)) }
        end.yield(.idle)
      }
    }
    let how = await ends.first { _ in true } ?? .crash
    // The results of the attempts under way are no longer stored.
    try await store.close()
    running.cancel()
    waiting.cancel()
    await running.value
    return how
  }

  /// Adds tasks to a file, performs the body with its URL, and returns the remaining tasks.
  private func remainingTasks(
    afterAdding count: Int,
    _ body: (URL) async throws -> Void
  ) async throws -> [TaskRecord] {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      func withStore<Result>(_ body: (TaskQueue) async throws -> Result) async throws -> Result {
        let store = JSONFileStore(at: url)
        let result = try await body(TaskQueue(persistence: store, clock: clock))
        try await store.close()
        return result
      }
      let jobs = (0..<count).map { Job(number: $0) }
      _ = try await withStore { try await $0.enqueue(contentsOf: jobs) }
      try await body(url)
      return try await withStore { try await $0.tasks(matching: TaskFilter()) }
    }
  }

  @Test(arguments: [4, 40])
  func `only the task that crashes its process is abandoned`(
    count: Int
  ) async throws {
    var starts = 0
    let left = try await remainingTasks(afterAdding: count) { url in
      for _ in 0..<40 {
        starts += 1
        let end = try await runProcess(at: url) { [clock] job, crash in
          if job.number == 0 {
            try await clock.sleep(for: .milliseconds(50))
            crash()
          }
          try await clock.sleep(for: .milliseconds(300))
        }
        if end == .idle { break }
      }
    }
    #expect(performed.entries.sorted() == Array(1..<count))
    #expect(left.map(\.state) == [.abandoned])
    #expect(
      left.first?.lastError == "the process ended 6 times in a row while it performed the task"
    )
    #expect(starts == 7)
  }

  @Test func `if two tasks crash their process, only these two are abandoned`() async throws {
    var starts = 0
    let left = try await remainingTasks(afterAdding: 20) { url in
      for _ in 0..<40 {
        starts += 1
        let end = try await runProcess(at: url) { [clock] job, crash in
          if job.number < 2 {
            try await clock.sleep(for: .milliseconds(50))
            crash()
          }
          try await clock.sleep(for: .milliseconds(300))
        }
        if end == .idle { break }
      }
    }
    #expect(performed.entries.sorted() == Array(2..<20))
    #expect(left.map(\.state) == [.abandoned, .abandoned])
    #expect(starts <= 13)
  }

  @Test func `a program that always crashes abandons no task`() async throws {
    let left = try await remainingTasks(afterAdding: 40) { url in
      for _ in 0..<200 {
        let end = try await runProcess(at: url, crashesAfter: .milliseconds(20)) { [clock] _, _ in
          try await clock.sleep(for: .milliseconds(50))
        }
        #expect(end == .crash)
      }
    }
    #expect(left.count == 40 && left.allSatisfy { $0.state == .waiting })
    #expect(performed.entries.isEmpty)
  }

  @Test func `a task that crashes its process is abandoned even if it is the only task`()
    async throws
  {
    var starts = 0
    let left = try await remainingTasks(afterAdding: 1) { url in
      for _ in 0..<40 {
        starts += 1
        let end = try await runProcess(at: url) { [clock] _, crash in
          crash()
          try await clock.sleep(for: .seconds(60))
        }
        if end == .idle { break }
      }
    }
    #expect(left.map(\.state) == [.abandoned])
    #expect(starts == 7)
    #expect(clock.now.offset < .seconds(12))
  }

  @Test func `a task that was interrupted twice isn't performed together with another such task`()
    async throws
  {
    let store = InMemoryStore()
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: clock
    )
    let log = Log<String>()
    await queue.register(Job.self) { [clock] job, _ in
      log.add("\(job.number) begins")
      try await clock.sleep(for: .seconds(job.number == 0 ? 100 : 1))
      log.add("\(job.number) ends")
    }
    for (number, count) in [2, 2, 1, 0].enumerated() {
      var record = Self.makeRecord(of: Job(number: number), number: number, clock: clock)
      record.interruptionCount = count
      _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .relaxed)
    }
    try await withRunning(queue) {
      while try await queue.count > 0 { try await clock.sleep(for: .seconds(1)) }
    }
    #expect(log.entries.prefix(3).sorted() == ["0 begins", "2 begins", "3 begins"])
    #expect(log.entries.suffix(3) == ["0 ends", "1 begins", "1 ends"])
    // The waiting task is tried again after at most twice the duration of the other task.
    #expect(clock.now.offset < .seconds(200))
  }

  @Test
  func `the delay of a task that waits for another interrupted task counts from the current date`()
    async throws
  {
    let store = InMemoryStore()
    for number in 1...2 {
      var record = Self.makeRecord(of: Job(number: number), number: number, clock: clock)
      record.interruptionCount = 2
      _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .relaxed)
    }
    let configuration = TaskQueueConfiguration(maxConcurrentTasks: 2)
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    await queue.register(Job.self) { [clock] _, _ in try await clock.sleep(for: .seconds(10)) }
    let start = clock.date
    try await withRunning(queue) {
      try await clock.sleep(for: .milliseconds(50))
      let waiting = try await queue.tasks(matching: TaskFilter(states: [.waiting]))
      #expect(waiting.map(\.countedFrom) == [start])
      #expect(waiting.allSatisfy { $0.availableDate > start })
    }
  }

  private static func makeRecord(
    of job: Job,
    number: Int,
    clock: VirtualClock
  ) -> TaskRecord {
    let payload = StoredPayload(job)
    return TaskRecord(
      id: .numbered(number),
      name: Job.taskName,
      payload: payload,
      createdDate: clock.date,
      availableDate: clock.date
    )
  }
}
