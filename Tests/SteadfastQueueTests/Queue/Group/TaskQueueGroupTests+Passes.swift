import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests passes, which are runs that end when no task is available, of all queues of a group.
extension TaskQueueGroupTests {
  /// Makes a group of queues.
  ///
  /// Each has one task, which takes 10 s.
  private func makeGroup(
    of names: [String],
    on store: some Persistence = InMemoryStore()
  ) async throws -> TaskQueueGroup {
    let group = makeGroup(on: store)
    for name in names {
      try await group.addQueue(name)
      try await group.enqueue(Note("1"), on: name)
    }
    return group
  }

  private func elapsedTime(of group: TaskQueueGroup, within budget: Duration) async throws
    -> Duration
  {
    let begin = clock.now
    try await group.run(within: budget)
    return begin.duration(to: clock.now)
  }

  @Test(arguments: StoreKind.allCases)
  func `all queues of a group share the time of a pass, and each performs what fits`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let group = try await makeGroup(of: ["a", "b"], on: store)
      for _ in 1...3 { try await group.enqueue(Note("1"), on: "b") }
      let begin = clock.now
      #expect(try await group.run(within: .seconds(25)) == 3)
      // Two notes of 10 s leave 5 s, which is too little for the third.
      #expect(begin.duration(to: clock.now) == .seconds(20))
      #expect(try await group.count() == 2)
      #expect(try await group.run(within: .seconds(25)) == 2)
      #expect(try await group.count() == 0)
    }
  }

  @Test
  func `when a pass runs out of time, the tasks of all queues are released without a penalty`()
    async throws
  {
    let group = try await makeGroup(of: ["a", "b"])
    #expect(try await elapsedTime(of: group, within: .seconds(5)) == .seconds(5))
    let tasks = try await group.tasks()
    #expect(tasks.map(\.queue).sorted() == ["a", "b"])
    #expect(tasks.allSatisfy { $0.state == .waiting && $0.retryCount == 0 })
    #expect(log.entries.sorted() == ["a begins 1", "b begins 1"])
    #expect(try await group.run(within: .seconds(30)) == 2)
  }

  @Test func `a queue that starts late gets no more time than the others`() async throws {
    let store = FaultInjectingStore()
    let group = try await makeGroup(of: ["a", "b"], on: store)
    // One of the two queues starts late, because the store returns its average durations late.
    store.inject(.delay(.seconds(2), on: clock), times: 1) { $0.kind == .value }
    #expect(try await elapsedTime(of: group, within: .seconds(5)) == .seconds(5))
    #expect(log.entries.count == 2)
  }

  @Test(arguments: [Duration.zero, .seconds(-1), .seconds(Int64.min)])
  func `a group's pass with a time of zero or less performs nothing`(budget: Duration)
    async throws
  {
    let group = try await makeGroup(of: ["a", "b"])
    #expect(try await group.run(within: budget) == 0)
    #expect(try await group.count() == 2)
  }

  @Test func `a pass of a group skips queues that are shut down or paused`() async throws {
    let group = try await makeGroup(of: ["a", "b", "c"])
    try await group.queue(named: "a").shutDown()
    try await group.queue(named: "b").pause()
    #expect(try await group.run(within: .seconds(30)) == 1)
    try await group.queue(named: "b").resume()
    #expect(try await group.runAvailable() == 1)
    #expect(log.entries == ["c begins 1", "c 1", "b begins 1", "b 1"])
  }

  @Test func `a group that was shut down rejects passes`() async throws {
    for names in [["a"], []] {
      let group = try await makeGroup(of: names)
      await group.shutDown()
      let first = await queueError { try await group.run(within: .seconds(30)) }
      let second = await queueError { try await group.runAvailable() }
      #expect(first?.code == .shutDown && second?.code == .shutDown)
      #expect(first?.message == "the group 'group' was shut down; make a new one")
    }
  }

  @Test func `cancelling a pass of a group cancels the attempts of all queues`() async throws {
    let group = try await makeGroup(of: ["a", "b"])
    let begin = clock.now
    let pass = Task(executorPreference: try #require(VirtualTime.current).executor) {
      try await group.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(5))
    pass.cancel()
    await #expect(throws: CancellationError.self) { try await pass.value }
    #expect(begin.duration(to: clock.now) == .seconds(5))
    #expect(try await group.tasks().map(\.state) == [.waiting, .waiting])
    // Cancelled attempts don't count for the average.
    #expect(try await group.run(within: .seconds(11)) == 2)
    #expect(try await group.count() == 0)
  }

  @Test func `a pass is rejected while the group runs`() async throws {
    let group = try await makeGroup(of: ["a"])
    try await withRunning(group) {
      try await clock.sleep(for: .seconds(1))
      let error = await queueError { try await group.run(within: .seconds(30)) }
      #expect(error?.code == .alreadyRunning)
    }
  }

  @Test func `a failing store ends the pass of all queues`() async throws {
    let store = FaultInjectingStore()
    let group = try await makeGroup(of: ["a", "b"], on: store)
    store.inject(.error(Refusal("the disk is full"))) { $0.kind == .claim }
    let error = await queueError { try await group.run(within: .seconds(30)) }
    #expect(error?.code == .storeFailed)
    #expect(try await group.count() == 2)
  }

  @Test
  func `a group is idle only after a queue's tasks that depend on another queue's tasks are done`()
    async throws
  {
    let group = makeGroup()
    let queues = [try await group.addQueue("a"), try await group.addQueue("b")]
    try await withRunning(group) {
      var last: Set<TaskID> = []
      for number in 1...4 {
        let queue = queues[number % 2]
        let options = TaskOptions(dependencies: last)
        last = [try await queue.enqueue(Note("\(number)"), options: options).id]
      }
      try await group.waitUntilIdle()
      #expect(log.entries.filter { !$0.contains("begins") } == ["b 1", "a 2", "b 3", "a 4"])
    }
  }

  @Test func `a group is idle only after tasks that an attempt added to another queue are done`()
    async throws
  {
    let store = FaultInjectingStore()
    let one = TaskQueueConfiguration(maxConcurrentTasks: 1)
    let group = TaskQueueGroup(persistence: store, configuration: one, clock: clock)
    try await group.addQueue("a").register(Note.self) { [log] note, _ in
      log.add(note.text)
    }
    try await group.addQueue("b").register(Note.self) { [clock] _, _ in
      try await clock.sleep(for: .seconds(10))
      // The claim that finds the task returns after this queue is idle again.
      store.inject(.delay(.seconds(5), on: clock)) { $0.kind == .claim }
      try await group.enqueue(Note("given"), on: "a")
      try await clock.sleep(for: .seconds(1))
    }
    try await group.enqueue(Note("gives"), on: "b")
    try await withRunning(group) {
      try await clock.sleep(for: .seconds(5))
      try await group.waitUntilIdle()
      #expect(log.entries == ["given"])
    }
  }

  @Test func `a group is idle only after tasks that an expired task made available are done`()
    async throws
  {
    // A claim of "a" is under way when "b" becomes idle.
    let store = SlowClaims(delays: ["a": .seconds(9), "b": .seconds(5)], clock: clock)
    let group = makeGroup(on: store)
    try await group.addQueue("a")
    let b = try await group.addQueue("b")
    await b.pause()
    let expiry = TaskOptions(expiryDate: clock.date + 1)
    let expired = try await group.enqueue(Note("expired"), on: "b", options: expiry)
    let options = TaskOptions(dependencies: [expired.id], dependencyRule: .allEnded)
    try await group.enqueue(Note("1"), on: "a", options: options)
    try await withRunning(group) {
      async let idle: Void = group.waitUntilIdle()
      try await clock.sleep(for: .seconds(6))
      await b.resume()
      try await idle
      #expect(log.entries == ["a begins 1", "a 1"])
    }
  }

  @Test(arguments: [true, false])
  func `a pass of a group ends in time even if its store is unavailable`(isFromBeginning: Bool)
    async throws
  {
    let store = FaultInjectingStore()
    let group = try await makeGroup(of: ["a", "b"], on: store)
    store.inject(.transientError, times: nil) {
      isFromBeginning ? $0.kind == .value : $0.changes.contains("setValue")
    }
    async let _ = restoreAfterTenMinutes(store)
    #expect(try await elapsedTime(of: group, within: .seconds(20)) == .seconds(20))
    #expect(log.entries.count == (isFromBeginning ? 0 : 4))
  }

  /// Restores the store after 10 minutes, so that a failing test doesn't wait forever.
  private func restoreAfterTenMinutes(_ store: FaultInjectingStore) async {
    try? await clock.sleep(for: .seconds(600))
    store.restore()
  }

  @Test func `a queue added while the group shuts down is shut down`() async throws {
    let shutDown = Log<TaskQueueGroup>()
    let group = TaskQueueGroup(clock: clock) { _ in shutDown.entries.first?.beginShutDown() }
    shutDown.add(group)
    let queue = try await group.addQueue("late")
    let error = await queueError { try await queue.runAvailable() }
    #expect(error?.code == .shutDown)
  }
}

/// A store in memory whose claims are delayed, with a delay for each queue.
private struct SlowClaims: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  let delays: [String: Duration]
  let clock: VirtualClock

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await clock.sleep(for: delays[request.queue] ?? .zero)
    return try await base.claim(request)
  }
}
