import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Job: TaskPayload {
  var seconds: Int
  var text = ""
}
private struct Other: TaskPayload { var seconds: Int }

/// Tests `run(within:)`.
@Suite(.virtualTime) struct RunWithinTests {
  let time: VirtualTime
  let log = Log<String>()
  var clock: VirtualClock { time.clock }

  init() throws { time = try #require(VirtualTime.current) }

  func makeQueue(
    on store: any Persistence = InMemoryStore(),
    workers: Int = 1
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
    await queue.register(Job.self) { [log, clock = time.clock] job, _ in
      try await clock.sleep(for: .seconds(job.seconds))
      log.add("job \(job.seconds)")
    }
    await queue.register(Other.self) { [log, clock = time.clock] job, _ in
      try await clock.sleep(for: .seconds(job.seconds))
      log.add("other \(job.seconds)")
    }
    return queue
  }

  @Test func `a task that isn't expected to end in time is skipped, and stays as it was`()
    async throws
  {
    let queue = await makeQueue()
    for _ in 1...4 { try await queue.enqueue(Job(seconds: 9)) }
    let other = try await queue.enqueue(Other(seconds: 2))
    #expect(try await queue.run(within: .seconds(30)) == 4)
    // After three jobs of 9 s, 3 s are left: enough for the other task, but not for a fourth job.
    #expect(log.entries == ["job 9", "job 9", "job 9", "other 2"])
    #expect(clock.now.offset == .seconds(29))
    #expect(try await other.outcome() == .succeeded)
    let left = try #require(try await queue.tasks().first)
    #expect(left.state == .waiting && left.retryCount == 0 && left.interruptionCount == 0)
    #expect(try await queue.run(within: .seconds(30)) == 1)
    #expect(try await queue.count == 0)
  }

  @Test func `an attempt that overruns is cancelled, and its task is released without a penalty`()
    async throws
  {
    let queue = await makeQueue(workers: 2)
    let task = try await queue.enqueue(Job(seconds: 100))
    try await queue.enqueue(Other(seconds: 1))
    let events = queue.events
    #expect(try await queue.run(within: .seconds(30)) == 2)
    #expect(clock.now.offset == .seconds(30))
    #expect(log.entries == ["other 1"])
    let record = try #require(try await queue.tasks().first)
    #expect(record.id == task.id && record.state == .waiting)
    #expect(record.retryCount == 0 && record.interruptionCount == 0)
    for await event in events {
      if case .released(let released) = event {
        #expect(released.id == task.id)
        break
      }
    }
    // The queue remains usable.
    #expect(try await queue.runAvailable() == 1)
    #expect(log.entries == ["other 1", "job 100"])
  }

  @Test(arguments: StoreKind.allCases)
  func `average durations persist across processes`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let first = await makeQueue(on: store)
      try await first.enqueue(Job(seconds: 20))
      #expect(try await first.run(within: .seconds(30)) == 1)
      await first.shutDown()
      let second = await makeQueue(on: store)
      try await second.enqueue(Job(seconds: 20))
      #expect(try await second.run(within: .seconds(19)) == 0)
    }
  }

  @Test func `each queue of a group has its own average durations`() async throws {
    let group = TaskQueueGroup(clock: clock) { [log, clock = time.clock] queue in
      await queue.register(Job.self) { job, _ in
        try await clock.sleep(for: .seconds(job.seconds))
        log.add(queue.name)
      }
    }
    for name in ["default", "slow", "other"] {
      let queue = try await group.addQueue(name)
      try await queue.enqueue(Job(seconds: name == "slow" ? 20 : 5))
      #expect(try await queue.run(within: .seconds(30)) == 1)
    }
    for queue in group.queues {
      try await queue.enqueue(Job(seconds: 1))
      _ = try await queue.run(within: .seconds(6))
    }
    #expect(log.entries == ["default", "slow", "other", "default", "other"])
  }

  @Test func `a name whose tasks never fit is tried again in the fourth run`()
    async throws
  {
    let queue = await makeQueue()
    for _ in 1...3 {
      try await queue.enqueue(Job(seconds: 20))
      #expect(try await queue.run(within: .seconds(30)) == 1)
    }
    try await queue.enqueue(Job(seconds: 5))
    var counts: [Int] = []
    for _ in 1...4 { counts.append(try await queue.run(within: .seconds(10))) }
    #expect(counts == [0, 0, 0, 1])
    // Runs in which no task with the name waits don't count, so the name keeps its average.
    for _ in 1...4 { #expect(try await queue.run(within: .seconds(1)) == 0) }
    try await queue.enqueue(Job(seconds: 5))
    #expect(try await queue.run(within: .seconds(4)) == 0)
  }

  @Test func `cancelling the call cancels its attempts, and they don't count for the average`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Job(seconds: 20))
    let run = Task(executorPreference: time.executor) {
      try await queue.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(5))
    run.cancel()
    await #expect(throws: CancellationError.self) { try await run.value }
    #expect(clock.now.offset == .seconds(5))
    #expect(try await queue.run(within: .seconds(2)) == 1)
  }

  @Test(arguments: [Duration.zero, .seconds(-1), .seconds(Int64.min)])
  func `a run with a time of zero or less performs nothing`(budget: Duration) async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Job(seconds: 0))
    #expect(try await queue.run(within: budget) == 0)
    #expect(try await queue.count == 1)
  }

  @Test func `a second run is rejected, and doesn't shorten the first one`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Job(seconds: 100))
    async let first = queue.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(5))
    let error = await queueError { try await queue.run(within: .seconds(1)) }
    #expect(error?.code == .alreadyRunning)
    #expect(try await first == 1)
    #expect(clock.now.offset == .seconds(30))
  }

  @Test
  func `a run with limited time fails if the average durations can't be stored`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Job(seconds: 1))
    store.inject(.error(Broken())) { call in
      call.changes.contains { if case .setValue = $0 { true } else { false } }
    }
    let error = await queueError { try await queue.run(within: .seconds(30)) }
    #expect(error?.code == .storeFailed)
    #expect(try await queue.count == 0)
  }

  private struct Broken: Error {}

  @Test func `after a run with limited time, the queue waits for its store as before`() async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Job(seconds: 100))
    #expect(try await queue.run(within: .seconds(30)) == 1)
    store.inject(.transientError, times: 2) { $0.changes.contains("insert") }
    try await queue.enqueue(Other(seconds: 1))
    #expect(try await queue.statistics.storeRetries == 2)
  }

  /// Expects that a run of 10 s ends in time although its store is unavailable for longer.
  private func expectRunEndsInTime(
    of queue: TaskQueue,
    on store: FaultInjectingStore,
    attempts: Int
  ) async {
    await withTaskGroup { group in
      group.addTask {
        let count = try? await queue.run(within: .seconds(10))
        #expect(count == attempts)
      }
      group.addTask { [clock = time.clock] in
        try? await clock.sleep(for: .seconds(60))
        store.restore()
      }
      await group.next()
      #expect(clock.now.offset == .seconds(10))
      group.cancelAll()
    }
    store.restore()
  }

  /// Before its first claim, the run opens the store, and reads the averages and the stored pause.
  @Test(arguments: 0...2)
  func `the time limit of a run includes the calls to the store before the first attempt`(
    calls: Int
  ) async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Job(seconds: 0))
    let last = store.calls.count + calls
    store.inject(.transientError, times: nil) { $0.number > last }
    await expectRunEndsInTime(of: queue, on: store, attempts: 0)
    #expect(try await queue.run(within: .seconds(10)) == 1)
  }

  @Test
  func `the time limit of a run includes the calls to the store after the last attempt`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Job(seconds: 1))
    store.inject(.transientError, times: nil) { $0.changes.contains("setValue") }
    await expectRunEndsInTime(of: queue, on: store, attempts: 1)
    #expect(try await queue.count == 0)
  }

  @Test func `a run throws the store's error, even if the store's error is a timeout`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    store.inject(.error(TimeoutError(limit: .seconds(1)))) { $0.kind == .open }
    await #expect(throws: TimeoutError.self) { try await queue.run(within: .seconds(10)) }
  }

  @Test func `a task whose attempt was cut short doesn't start again with as little time left`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Job(seconds: 20))
    var counts: [Int] = []
    for _ in 1...4 {
      try await queue.enqueue(Other(seconds: 9), options: TaskOptions(priority: .high))
      counts.append(try await queue.run(within: .seconds(10)))
    }
    #expect(counts == [2, 1, 1, 1])
    #expect(log.entries == Array(repeating: "other 9", count: 4))
  }
}
