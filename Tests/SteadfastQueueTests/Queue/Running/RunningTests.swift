import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct RunningTests {
  private let clock = VirtualClock()
  private let log = Log<String>()

  private func makeQueue(
    on store: some Persistence = InMemoryStore(),
    concurrency: Int = 1,
    maxInterruptions: RetryLimit = 5
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: concurrency,
        maxInterruptions: maxInterruptions,
        randomness: .seeded(1)
      ),
      clock: clock
    )
    let log = log
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    return queue
  }

  // MARK: Success

  @Test func `a task is performed with its payload and succeeds`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("so important"))
    #expect(try await withRunning(queue) { try await task.outcome() } == .succeeded)
    #expect(log.entries == ["so important"])
    #expect(try await queue.count == 0)
  }

  @Test func `tasks are performed in order, one at a time`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(contentsOf: (1...20).map { Note("\($0)") })
    try await queue.enqueue(Note("first"), priority: .high)
    #expect(try await queue.runAvailable() == 21)
    #expect(log.entries == ["first"] + (1...20).map(String.init))
  }

  @Test func `a PerformableTask needs no closure`() async throws {
    struct Sync: PerformableTask {
      static let log = Log<Int>()
      func perform(in context: TaskContext) async throws { Self.log.add(context.retryCount) }
    }
    let queue = TaskQueue(clock: clock)
    await queue.register(Sync.self)
    try await queue.enqueue(Sync())
    try await queue.runAvailable()
    #expect(Sync.log.entries == [0])
  }

  @Test func `tasks that a handler enqueues are performed in the same pass`()
    async throws
  {
    let queue = await makeQueue()
    let log = log
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      if note.text == "parent" { try await queue.enqueue(Note("child")) }
    }
    try await queue.enqueue(Note("parent"))
    #expect(try await queue.runAvailable() == 2)
    #expect(log.entries == ["parent", "child"])
  }

  @Test(arguments: [2, 5])
  func `a queue performs as many tasks at a time as configured`(limit: Int) async throws {
    let queue = await makeQueue(concurrency: limit)
    let gate = Waiters<Void>()
    let running = Log<Int>()
    await queue.register(Note.self) { _, _ in
      running.add(1)
      try await gate.wait { nil }
    }
    for number in 1...limit + 1 { try await queue.enqueue(Note("\(number)")) }
    let events = queue.events
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await queue.run() }
      var started = 0
      for await event in events {
        if case .started = event { started += 1 }
        if started == limit { break }
      }
      #expect(queue.isProcessing)
      let count = try await queue.count(matching: TaskFilter(states: [.running]))
      #expect(count == limit)
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    #expect(running.count == limit)
  }

  @Test(.virtualTime)
  func `enqueueing tasks in a loop yields to the workers`()
    async throws
  {
    let queue = await makeQueue()
    try await withRunning(queue) {
      for number in 0..<2_000 { try await queue.enqueue(Note("\(number)")) }
      // Everything runs on one thread, so tasks are performed only if enqueueing yields.
      #expect(log.entries.count > 1_000)
    }
  }

  // MARK: Dates

  @Test func `a task waits for its date`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("later"), availableDate: clock.date + 30)
    #expect(try await queue.runAvailable() == 0)
    let outcome = try await withRunning(queue) {
      try await clock.waitForSleepers(count: 1)
      #expect(clock.pendingSleeps.map(\.deadline) == [clock.now.advanced(by: .seconds(30))])
      clock.advance(by: .seconds(30))
      return try await task.outcome()
    }
    #expect(outcome == .succeeded)
  }

  @Test func `a new task with an earlier date isn't delayed by the timer`() async throws {
    try await withVirtualTime { time in
      let (clock, log) = (time.clock, Log<String>())
      let start = clock.date
      let queue = TaskQueue(clock: clock)
      await queue.register(Note.self) { note, _ in
        log.add("\(note.text) at \(clock.date.timeIntervalSince(start))")
      }
      let late = try await queue.enqueue(Note("late"), availableDate: start + 50)
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(5))
        try await queue.enqueue(Note("early"), availableDate: start + 20)
        _ = try await late.outcome()
      }
      #expect(log.entries == ["early at 20.0", "late at 50.0"])
    }
  }

  @Test func `a forward jump of the system clock is detected within a minute`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("tomorrow"), availableDate: clock.date + 86_400)
    let outcome = try await withRunning(queue) {
      try await clock.waitForSleepers(count: 1)
      clock.setDate(clock.date + 86_400)
      clock.advance(by: .seconds(60))
      return try await task.outcome()
    }
    #expect(outcome == .succeeded)
  }

  // MARK: Lifetime of a run

  @Test func `starting a run during another run throws an error`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("one"))
    try await withRunning(queue) {
      _ = try await task.outcome()
      let error = await #expect(throws: TaskQueueError.self) { try await queue.runAvailable() }
      #expect(error?.code == .alreadyRunning)
    }
  }

  @Test func `after a shutdown, a run throws, but lookups and enqueueing still work`() async throws
  {
    let queue = await makeQueue()
    await queue.shutDown()
    let error = await #expect(throws: TaskQueueError.self) { try await queue.run() }
    #expect(error?.code == .shutDown)
    try await queue.enqueue(Note("for later"))
    #expect(try await queue.count == 1)
  }

  @Test func `shutting down waits for the attempts under way`() async throws {
    let queue = await makeQueue()
    let log = log
    await queue.register(Note.self) { note, _ in
      queue.beginShutDown()
      log.add(note.text)
    }
    try await queue.enqueue(contentsOf: [Note("under way"), Note("not begun")])
    try await queue.run()
    #expect(log.entries == ["under way"])
    #expect(try await queue.count == 1)
  }

  @Test func `cancelling a run cancels its attempts and releases their tasks unchanged`()
    async throws
  {
    let queue = await makeQueue(concurrency: 2)
    let started = Log<Int>()
    await queue.register(Note.self) { _, context in
      started.add(context.retryCount)
      try await clock.sleep(for: .seconds(1000))
    }
    try await queue.enqueue(contentsOf: (1...3).map { Note("\($0)") })
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.waitForSleepers(count: 2)
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    let left = try await queue.tasks()
    #expect(left.count == 3)
    #expect(left.allSatisfy { $0.state == .waiting && $0.retryCount == 0 && $0.lastError == nil })

    await queue.register(Note.self) { note, _ in log.add(note.text) }
    #expect(try await queue.runAvailable() == 3)
    #expect(log.entries.sorted() == ["1", "2", "3"])
  }

  @Test func `a cancelled attempt that returns counts as a success`() async throws {
    let queue = await makeQueue()
    await queue.register(Note.self) { _, _ in try? await clock.sleep(for: .seconds(1000)) }
    let task = try await queue.enqueue(Note("stubborn"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.waitForSleepers(count: 1)
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `a paused queue starts nothing until it is resumed`() async throws {
    let queue = await makeQueue()
    await queue.pause()
    #expect(queue.isPaused)
    let task = try await queue.enqueue(Note("paused"))
    #expect(try await queue.runAvailable() == 0)
    let outcome = try await withRunning(queue) {
      #expect(log.entries.isEmpty)
      await queue.resume()
      return try await task.outcome()
    }
    #expect(outcome == .succeeded)
    #expect(!queue.isPaused)
  }

  // MARK: Crash loops

  @Test func `a task that was interrupted too often is abandoned instead of performed`()
    async throws
  {
    let store = InMemoryStore()
    var record = TaskRecord.make(1)
    record.interruptionCount = 3
    _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .durable)
    let queue = await makeQueue(on: store, maxInterruptions: 2)
    #expect(try await queue.runAvailable() == 0)
    #expect(log.entries.isEmpty)
    let letter = try #require(try await queue.tasks(matching: .deadLetters).first)
    #expect(letter.lastError == "the process ended 3 times in a row while it performed the task")
  }

  // MARK: Arguments

  @Test func `the error for an invalid argument names that argument`() async throws {
    let queue = await makeQueue()
    let negative = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note(""), maxRetries: -1)
    }
    #expect(negative?.code == .invalidArgument)
    #expect(negative?.message == "maxRetries is -1; give 0 or more, or .alwaysRetry for no limit")
    let endless = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note(""), availableDate: Date(timeIntervalSince1970: .infinity))
    }
    #expect(endless?.code == .invalidArgument)
    let idle = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: -2))
    let error = await #expect(throws: TaskQueueError.self) { try await idle.run() }
    #expect(error?.message == "maxConcurrentTasks is -2; give 1 to 10000")
    #expect(try await queue.count == 0)
  }
}
