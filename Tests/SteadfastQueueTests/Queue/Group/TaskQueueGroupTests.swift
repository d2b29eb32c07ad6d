import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests groups of several queues on one store.
@Suite(.virtualTime) struct TaskQueueGroupTests {
  let time: VirtualTime
  let log = Log<String>()

  init() throws { time = try #require(VirtualTime.current) }

  var clock: VirtualClock { time.clock }

  func makeGroup(
    on store: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(maxConcurrentTasks: 1)
  ) -> TaskQueueGroup {
    TaskQueueGroup(persistence: store, configuration: configuration, clock: clock) {
      [log, clock] queue in
      await queue.register(Note.self) { [name = queue.name] note, _ in
        log.add("\(name) begins \(note.text)")
        try await clock.sleep(for: .seconds(10))
        if note.text == "fails" { throw TaskAbandoned("refused") }
        log.add("\(name) \(note.text)")
      }
    }
  }

  func withRunning(_ group: TaskQueueGroup, _ body: () async throws -> Void) async throws {
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      try await body()
      await group.shutDown()
      try await tasks.waitForAll()
    }
  }

  func startRun(of group: TaskQueueGroup) -> Task<Void, any Error> {
    Task(executorPreference: time.executor) { try await group.run() }
  }

  private func errorCode(
    _ body: @Sendable () async throws -> some Sendable
  ) async -> TaskQueueError.Code? {
    await queueError(body)?.code
  }

  // MARK: Queues

  @Test(arguments: StoreKind.allCases)
  func `each queue performs its own tasks, with its own workers`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let many = TaskQueueConfiguration(maxConcurrentTasks: 3)
      try await group.addQueue("a", configuration: many)
      try await group.addQueue("b")
      for number in 1...3 {
        try await group.enqueue(Note("a\(number)"), on: "a")
        try await group.enqueue(Note("b\(number)"), on: "b")
      }
      let begin = clock.now
      try await withRunning(group) {
        try await group.queue(named: "a").waitUntilIdle()
        #expect(begin.duration(to: clock.now) == .seconds(10))
        try await group.waitUntilIdle()
        #expect(begin.duration(to: clock.now) == .seconds(30))
      }
      let done = log.entries.filter { !$0.contains("begins") }
      #expect(done.filter { $0.hasPrefix("a") }.sorted() == ["a a1", "a a2", "a a3"])
      #expect(done.filter { $0.hasPrefix("b") } == ["b b1", "b b2", "b b3"])
    }
  }

  @Test func `an unknown queue is rejected with an error that lists the existing queues`()
    async throws
  {
    let group = makeGroup()
    try await group.addQueue("mail")
    let error = await queueError { try await group.enqueue(Note(""), on: "mial") }
    #expect(error?.code == .unknownQueue)
    #expect(error?.message.contains("'mial'") == true && error?.message.contains("'mail'") == true)
  }

  @Test func `a duplicate name and a name that can't be stored are rejected`()
    async throws
  {
    let group = makeGroup()
    let first = try await group.addQueue("mail")
    #expect(await errorCode({ try await group.addQueue("mail") }) == .nameTaken)
    for name in ["", "\0", "a\n", String(repeating: "x", count: 256)] {
      let error = await queueError { try await group.addQueue(name) }
      #expect(error?.code == .invalidArgument, "\(name)")
    }
    #expect(group.queues.map(\.name) == ["mail"])
    let found = try group.queue(named: "mail")
    #expect(found === first)
  }

  @Test(arguments: StoreKind.allCases)
  func `the tasks of a missing queue remain stored until the queue is added again`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = makeGroup(on: store)
      try await first.addQueue("mail")
      try await first.enqueue(Note("1"), on: "mail")
      await first.shutDown()
      let second = makeGroup(on: store)
      try await second.addQueue("other")
      #expect(try await second.runAvailable() == 0)
      #expect(try await second.count() == 1)
      #expect(try await second.tasks().map(\.queue) == ["mail"])
      try await second.addQueue("mail")
      #expect(try await second.runAvailable() == 1)
      #expect(log.entries == ["mail begins 1", "mail 1"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `the default queue gets the tasks of a queue that used the store alone`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let alone = TaskQueue(persistence: store, clock: clock)
      try await alone.enqueue(Note("1"))
      await alone.shutDown()
      let group = makeGroup(on: store)
      try await group.addQueue("default")
      try await group.addQueue("mail")
      try await group.enqueue(Note("2"), on: "mail")
      #expect(try await group.count(matching: TaskFilter(queue: "default")) == 1)
      #expect(try await group.runAvailable() == 2)
      #expect(log.entries.sorted().prefix(2) == ["default 1", "default begins 1"])
    }
  }

  @Test func `a group has exclusive use of the store that its queues share`() async throws {
    let store = InMemoryStore()
    let group = makeGroup(on: store)
    try await group.addQueue("a")
    try await group.addQueue("b")
    let other = TaskQueue(name: "other", persistence: store, clock: clock)
    try await withRunning(group) {
      _ = try await group.enqueue(Note("1"), on: "a").outcome()
      let error = await queueError { try await other.run() }
      #expect(error?.code == .alreadyRunning)
      #expect(error?.message.contains("'group'") == true)
      // After one queue has ended, the other queues still use the store.
      try await group.queue(named: "a").shutDown()
      #expect(await errorCode({ try await other.run() }) == .alreadyRunning)
    }
    #expect(try await other.runAvailable() == 0)
  }

  // MARK: Running

  @Test func `a queue added to a running group runs at once`() async throws {
    let group = makeGroup()
    try await withRunning(group) {
      try await group.addQueue("late")
      let outcome = try await group.enqueue(Note("1"), on: "late").outcome()
      #expect(outcome == .succeeded)
    }
  }

  @Test func `a group can't run during another run or after its shutdown`() async throws {
    let group = makeGroup()
    try await group.addQueue("a")
    try await withRunning(group) {
      _ = try await group.enqueue(Note("1"), on: "a").outcome()
      #expect(await errorCode({ try await group.run() }) == .alreadyRunning)
    }
    #expect(await errorCode({ try await group.run() }) == .shutDown)
    #expect(await errorCode({ try await group.addQueue("b") }) == .shutDown)
  }

  @Test func `a cancelled run ends, and its tasks remain`() async throws {
    let group = makeGroup()
    try await group.addQueue("a")
    try await group.addQueue("b")
    try await group.enqueue(Note("1"), on: "a")
    let run = startRun(of: group)
    try await clock.sleep(for: .seconds(5))
    run.cancel()
    await #expect(throws: CancellationError.self) { try await run.value }
    #expect(try await group.count() == 1)
    #expect(try await group.runAvailable() == 1)
  }

  @Test func `the run of a group without queues continues until it is cancelled`()
    async throws
  {
    let group = makeGroup()
    let run = startRun(of: group)
    try await clock.sleep(for: .seconds(5))
    run.cancel()
    await #expect(throws: CancellationError.self) { try await run.value }
  }

  @Test func `a failing store ends the run of all queues`() async throws {
    let store = FaultInjectingStore(InMemoryStore())
    let group = makeGroup(on: store)
    try await group.addQueue("a")
    try await group.addQueue("b")
    try await group.enqueue(Note("1"), on: "a")
    store.inject(.error(Refusal("the disk is full"))) { $0.kind == .claim }
    let error = await queueError { try await group.run() }
    #expect(error?.code == .storeFailed)
  }

  @Test func `all queues, or a single one, can be paused and resumed`() async throws {
    let group = makeGroup()
    let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
    try await withRunning(group) {
      await group.pause()
      #expect(a.isPaused && b.isPaused)
      try await group.enqueue(Note("1"), on: "a")
      try await group.enqueue(Note("1"), on: "b")
      try await clock.sleep(for: .seconds(100))
      #expect(log.entries == [])
      await b.resume()
      try await b.waitUntilIdle()
      #expect(log.entries == ["b begins 1", "b 1"])
      await group.resume()
      try await a.waitUntilIdle()
      #expect(log.entries.count == 4)
    }
  }

  @Test func `a stored pause affects only its queue, and persists across processes`() async throws {
    let store = InMemoryStore()
    let first = makeGroup(on: store)
    try await first.addQueue("a").pause(durability: .durable)
    try await first.addQueue("b")
    await first.shutDown()
    let second = makeGroup(on: store)
    try await second.addQueue("a")
    try await second.addQueue("b")
    for name in ["a", "b"] { try await second.enqueue(Note("1"), on: name) }
    #expect(try await second.runAvailable() == 1)
    #expect(log.entries == ["b begins 1", "b 1"])
  }

  @Test func `all queues, or a single one, can be paused and resumed in the store`() async throws {
    let store = InMemoryStore()
    let first = makeGroup(on: store)
    for name in ["a", "b"] { try await first.addQueue(name) }
    try await first.pause(durability: .durable)
    await first.shutDown()
    let second = makeGroup(on: store)
    for name in ["a", "b"] {
      try await second.addQueue(name)
      try await second.enqueue(Note("1"), on: name, uniqueKey: "key")
      #expect(try await !second.enqueue(Note("2"), on: name, uniqueKey: "key").isNew)
    }
    #expect(try await second.runAvailable() == 0)
    try await second.queue(named: "b").resume(durability: .durable)
    #expect(try await second.runAvailable() == 1)
    #expect(log.entries == ["b begins 1", "b 1"])
    try await second.resume(durability: .durable)
    #expect(try await second.runAvailable() == 1)
  }

  @Test func `a shutdown within a limit cuts the attempts of all queues short`() async throws {
    let group = makeGroup()
    for name in ["a", "b"] {
      try await group.addQueue(name)
      try await group.enqueue(Note("1"), on: name)
    }
    let run = startRun(of: group)
    try await clock.sleep(for: .seconds(5))
    let begin = clock.now
    await group.shutDown(within: .seconds(2))
    try await run.value
    #expect(begin.duration(to: clock.now) == .seconds(2))
    #expect(try await group.count() == 2)
  }
}
