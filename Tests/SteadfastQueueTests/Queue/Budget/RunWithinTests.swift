import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Job: TaskPayload {
  var seconds: Int
  var text = ""
}
private struct Other: TaskPayload { var seconds: Int }

/// Runs with limited time.
@Suite(.virtualTime) struct RunWithinTests {
  let time: VirtualTime
  let log = Log<String>()
  var clock: VirtualClock { time.clock }

  init() throws { time = try #require(VirtualTime.current) }

  func queue(
    _ store: any Persistence = InMemoryStore(),
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

  @Test func `what can't be expected to end in time is left out, unharmed`() async throws {
    let queue = await queue()
    for _ in 1...4 { try await queue.enqueue(Job(seconds: 9)) }
    let other = try await queue.enqueue(Other(seconds: 2))
    #expect(try await queue.run(within: .seconds(30)) == 4)
    // Three of 9 s leave 3 s: too little for the fourth, and enough for the other.
    #expect(log.entries == ["job 9", "job 9", "job 9", "other 2"])
    #expect(clock.now.offset == .seconds(29))
    #expect(try await other.outcome() == .succeeded)
    let left = try #require(try await queue.tasks().first)
    #expect(left.state == .waiting && left.retryCount == 0 && left.interruptionCount == 0)
    #expect(try await queue.run(within: .seconds(30)) == 1)
    #expect(try await queue.count == 0)
  }

  @Test func `an attempt that overruns is cancelled, and its task released unharmed`() async throws
  {
    let queue = await queue(workers: 2)
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
    // The queue is as usable as before.
    #expect(try await queue.runAvailable() == 1)
    #expect(log.entries == ["other 1", "job 100"])
  }

  @Test(arguments: StoreKind.allCases)
  func `averages outlast the process`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let first = await queue(store)
      try await first.enqueue(Job(seconds: 20))
      #expect(try await first.run(within: .seconds(30)) == 1)
      await first.shutDown()
      let second = await queue(store)
      try await second.enqueue(Job(seconds: 20))
      #expect(try await second.run(within: .seconds(19)) == 0)
    }
  }

  @Test func `each queue of a group has its own averages`() async throws {
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

  @Test func `a name that is too long for the whole time is tried again in the fourth run`()
    async throws
  {
    let queue = await queue()
    for _ in 1...3 {
      try await queue.enqueue(Job(seconds: 20))
      #expect(try await queue.run(within: .seconds(30)) == 1)
    }
    try await queue.enqueue(Job(seconds: 5))
    var counts: [Int] = []
    for _ in 1...4 { counts.append(try await queue.run(within: .seconds(10))) }
    #expect(counts == [0, 0, 0, 1])
    // While none of its tasks wait, nothing is forgotten.
    for _ in 1...4 { #expect(try await queue.run(within: .seconds(1)) == 0) }
    try await queue.enqueue(Job(seconds: 5))
    #expect(try await queue.run(within: .seconds(4)) == 0)
  }

  @Test func `cancelling the call cancels its attempts, which don't count for the average`()
    async throws
  {
    let queue = await queue()
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
  func `without time, nothing is performed`(budget: Duration) async throws {
    let queue = await queue()
    try await queue.enqueue(Job(seconds: 0))
    #expect(try await queue.run(within: budget) == 0)
    #expect(try await queue.count == 1)
  }

  @Test func `another run is refused, and leaves the first one its time`() async throws {
    let queue = await queue()
    try await queue.enqueue(Job(seconds: 100))
    async let first = queue.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(5))
    let error = await queueError { try await queue.run(within: .seconds(1)) }
    #expect(error?.code == .alreadyRunning)
    #expect(try await first == 1)
    #expect(clock.now.offset == .seconds(30))
  }

  @Test func `a store that fails to keep the averages fails the run`() async throws {
    let store = FaultInjectingStore()
    let queue = await queue(store)
    try await queue.enqueue(Job(seconds: 1))
    store.inject(.error(Broken())) { call in
      call.changes.contains { if case .setValue = $0 { true } else { false } }
    }
    let error = await queueError { try await queue.run(within: .seconds(30)) }
    #expect(error?.code == .storeFailed)
    #expect(try await queue.count == 0)
  }

  private struct Broken: Error {}

  @Test func `when its time is up, the queue waits for its store as before`() async throws {
    let store = FaultInjectingStore()
    let queue = await queue(store)
    try await queue.enqueue(Job(seconds: 100))
    #expect(try await queue.run(within: .seconds(30)) == 1)
    store.inject(.transientError, times: 2) { $0.changes.contains("insert") }
    try await queue.enqueue(Other(seconds: 1))
    #expect(try await queue.statistics.storeRetries == 2)
  }

  @Test func `the time includes what the queue looks after before its tasks`() async throws {
    let store = FaultInjectingStore()
    let queue = await queue(store)
    try await queue.enqueue(Job(seconds: 0))
    // The averages are read. Then the store is gone, before anything is claimed.
    let first = store.calls.count
    store.inject(.transientError, times: nil) { $0.kind == .value && $0.number > first + 2 }
    await withTaskGroup { group in
      group.addTask { _ = try? await queue.run(within: .seconds(10)) }
      group.addTask { [clock = time.clock] in
        try? await clock.sleep(for: .seconds(60))
        store.restore()
      }
      await group.next()
      #expect(clock.now.offset == .seconds(10))
      group.cancelAll()
    }
    store.restore()
    #expect(try await queue.run(within: .seconds(10)) == 1)
  }

  @Test func `a name whose attempt was cut short late is not begun that late again`() async throws {
    let queue = await queue()
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

@Suite struct RunBudgetTests {
  private func budget(_ times: [String: Int]) -> RunBudget {
    var known = RunTimes()
    for (name, seconds) in times { known.add(.seconds(seconds), of: name) }
    return RunBudget(deadline: .seconds(30), times: known)
  }

  @Test func `there is room for what is expected to end before the deadline`() {
    var budget = budget(["a": 10, "b": 20])
    let room = ["a": 3, "b": 3, "new": 3]
    #expect(budget.room(in: room, at: .seconds(15)) == ["a": 3, "b": 0, "new": 3])
    #expect(budget.tooLong == ["b"])
    #expect(budget.room(in: room, at: .seconds(25)) == ["a": 0, "b": 0, "new": 3])
    #expect(budget.tooLong == ["b"])
  }

  @Test(arguments: [30, 31])
  func `from the deadline on, there is no room, which says nothing of any name`(now: Int) {
    var budget = budget(["a": 0, "b": 20])
    let none = ["a": 0, "b": 0, "new": 0]
    #expect(budget.room(in: ["a": 3, "b": 3, "new": 3], at: .seconds(now)) == none)
    #expect(budget.tooLong.isEmpty)
  }

  @Test func `an attempt that is cut short counts twice its time, or the average if longer`() {
    var budget = budget(["a": 8, "b": 1])
    for name in ["a", "b", "new"] {
      budget.note(.seconds(2), of: name, wasCutShort: true, at: .seconds(30))
    }
    // These end by themselves, or are cut short before the deadline.
    budget.note(.seconds(2), of: "a", wasCutShort: false, at: .seconds(30))
    budget.note(.seconds(2), of: "a", wasCutShort: true, at: .seconds(29))
    #expect(budget.measured.map(\.name) == ["a", "b", "new", "a"])
    #expect(budget.measured.map(\.time) == [8, 4, 4, 2].map { .seconds($0) })
  }
}

@Suite struct RunTimesTests {
  @Test func `times are the same after they were written and read`() throws {
    var times = RunTimes()
    for seconds in [1, 2, 3, 4] { times.add(.seconds(seconds), of: "a") }
    times.add(.milliseconds(1), of: "é\"")
    #expect(RunTimes(try times.bytes()) == times)
    #expect(times.average(of: "a") == .seconds(3))
    #expect(times.average(of: "b") == nil)
  }

  @Test(arguments: ["", "[]", "{\"a\":1}", "{\"a\":[]}", "{\"a\":[\"x\"]}"])
  func `bytes that make no sense are none`(text: String) {
    #expect(RunTimes(Array(text.utf8)).average(of: "a") == nil)
  }

  @Test func `when there is no room, some names are left out`() throws {
    var times = RunTimes()
    for index in 8..<12 { times.add(.seconds(1), of: "name \(index)") }
    let full = try times.bytes().count
    let read = RunTimes(try times.bytes(limit: full - 1))
    #expect(read.names.count(where: { _ in true }) == 3 && read.average(of: "name 11") == nil)
  }
}
