import Foundation
import SteadfastTesting
import Testing

@Suite(.virtualTime, .timeLimit(.minutes(5))) struct DrainTests {
  private let time: VirtualTime
  private let trace = Trace()

  init() throws { time = try #require(VirtualTime.current) }

  private func makeQueue(
    name: String = "post",
    handler: @escaping @Sendable (Letter, TaskContext) async throws -> Void = { _, _ in }
  ) async -> TaskQueue {
    let queue = TaskQueue(
      name: name,
      configuration: TaskQueueConfiguration(backoff: .constant(.seconds(10))),
      clock: time.clock
    )
    let (trace, clock) = (trace, time.clock)
    await queue.register(Letter.self) { letter, context in
      trace.note("\(clock.now): \(letter.text)")
      try await handler(letter, context)
    }
    return queue
  }

  @Test func `draining an empty queue takes no time`() async throws {
    #expect(try await time.drain(makeQueue()) == 0)
    #expect(time.clock.now.offset == .zero)
  }

  @Test func `draining performs every task and every retry at its date`() async throws {
    let queue = await makeQueue { letter, context in
      if letter.text == "bad", context.retryCount < 2 { throw Offline() }
    }
    try await queue.enqueue(Letter("later"), availableDate: time.clock.date + 86_400)
    try await queue.enqueue(Letter("bad"))
    #expect(try await time.drain(queue) == 4)
    #expect(
      trace.entries == [
        "0.0 seconds: bad", "10.0 seconds: bad", "20.0 seconds: bad", "86400.0 seconds: later",
      ]
    )
    #expect(try await queue.count == 0)
  }

  @Test func `draining reaches each date, even if its distance from now is rounded`() async throws {
    let queue = await makeQueue()
    let dates = (1...200).map { time.clock.date + 1 / Double($0) }
    for date in dates { try await queue.enqueue(Letter("x"), availableDate: date) }
    #expect(try await time.drain(queue) == 200)
  }

  @Test func `draining also performs the tasks that handlers enqueue`() async throws {
    let queue = await makeQueue()
    let clock = time.clock
    await queue.register(Forgetful.self) { _, _ in
      try await queue.enqueue(Letter("child"), availableDate: clock.date + 60)
    }
    try await queue.enqueue(Forgetful())
    #expect(try await time.drain(queue) == 2)
    #expect(trace.entries == ["60.0 seconds: child"])
  }

  @Test(.virtualTime(.manual)) func `draining also advances a virtual time in manual mode`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Letter("later"), availableDate: time.clock.date + 60)
    #expect(try await time.drain(queue) == 1)
    #expect(time.clock.now.offset == .seconds(60))
  }

  @Test func `if the clock's date was set back, draining moves the time further to perform a task`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Letter("later"), availableDate: time.clock.date + 60)
    time.clock.setDate(time.clock.date - 3600)
    #expect(try await time.drain(queue) == 1)
    #expect(trace.entries == ["3660.0 seconds: later"])
  }

  // MARK: Tasks that can't be performed

  @Test func `a task that is always retried reaches the limit of attempts`() async throws {
    let queue = await makeQueue { _, _ in throw Offline() }
    try await queue.enqueue(Letter("bad"), maxRetries: .alwaysRetry)
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue, limit: 7) }
    #expect(error?.code == .limitReached)
    #expect(
      error?.description.contains("after 7 attempts, 1 task: Letter (waiting, retry 7") == true
    )
    #expect(trace.entries.count == 7)
  }

  @Test func `draining succeeds if the limit equals the number of attempts`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(contentsOf: ["a", "b", "c"].map(Letter.init))
    #expect(try await time.drain(queue, limit: 3) == 3)
  }

  @Test func `a handler that always enqueues another task reaches the limit of attempts`()
    async throws
  {
    let clock = time.clock
    let queue = TaskQueue(clock: clock)
    let trace = trace
    await queue.register(Letter.self) { letter, _ in
      trace.note(letter.text)
      try await clock.sleep(for: .seconds(1))
      try await queue.enqueue(letter, availableDate: Date(timeIntervalSince1970: 0))
    }
    try await queue.enqueue(Letter("again"))
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue, limit: 9) }
    #expect(error?.code == .limitReached)
    // The attempt beyond the limit was started, cancelled, and released.
    #expect(trace.entries.count == 10)
    #expect(try await queue.pendingTasks(of: Letter.self).map(\.record.retryCount) == [0])
  }

  @Test func `the error names a task without a handler`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Forgetful(), availableDate: time.clock.date + 60)
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue) }
    #expect(error?.code == .tasksLeft)
    #expect(error?.description.contains("1 task: Forgetful (waiting") == true)
  }

  @Test func `the error says that the queue is paused`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Letter("held"))
    await queue.pause()
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue) }
    #expect(error?.code == .tasksLeft)
    #expect(error?.description.contains("the queue is paused; resume it") == true)
    await queue.resume()
    #expect(try await time.drain(queue) == 1)
  }

  /// Drains a queue that can't perform a task with these options, and returns the description of
  /// the error.
  private func drainError(
    for options: TaskOptions = TaskOptions(),
    after prepare: (TaskQueue, TaskID) async throws -> Void
  ) async throws -> String {
    let queue = await makeQueue()
    await queue.setCondition("power", holds: false)
    let task = try await queue.enqueue(Letter("left"), options: options)
    try await prepare(queue, task.id)
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue) }
    #expect(error?.code == .tasksLeft)
    return error?.description ?? ""
  }

  @Test func `the error for remaining tasks says why they remain`() async throws {
    let unknown = try await drainError(for: TaskOptions(conditions: ["network"])) { _, _ in }
    #expect(
      unknown.hasSuffix(
        "the queue does not know whether the condition 'network' holds; register a monitor for it, "
          + "or call setCondition(_:holds:)"
      )
    )
    let unmet = try await drainError(for: TaskOptions(conditions: ["power"])) { _, _ in }
    #expect(unmet.hasSuffix("the condition 'power' does not hold; call setCondition(_:holds:)"))
    let paused = try await drainError { queue, _ in await queue.pause(name: "Letter") }
    #expect(paused.hasSuffix("the name 'Letter' is paused; resume it"))
    let pausedTask = try await drainError { queue, id in try await queue.pause(id) }
    #expect(pausedTask.hasSuffix("a task is paused; resume it"))
    let unhandled = try await drainError { queue, _ in try await queue.enqueue(Forgetful()) }
    #expect(unhandled.contains("no handler is registered for the name 'Forgetful'"))
    #expect(!unhandled.contains("Letter"))
    let suspended = try await drainError { queue, _ in
      await queue.register(Letter.self) { _, context in
        try await context.completion("reply") { _ in }
      }
    }
    #expect(suspended.hasSuffix("a task waits for a completion; complete it"))
  }

  @Test func `draining does not wait for an unreachable date`() async throws {
    let queue = await makeQueue()
    let last = Date(timeIntervalSince1970: 253_402_300_799)
    try await queue.enqueue(Letter("never"), availableDate: last)
    let error = await #expect(throws: QueueTestError.self) { try await time.drain(queue) }
    #expect(error?.code == .tasksLeft)
  }

  @Test func `draining a running queue is an error`() async throws {
    let queue = await makeQueue()
    await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      await time.advance(by: .zero)
      await #expect(throws: TaskQueueError.self) { try await time.drain(queue) }
      group.cancelAll()
    }
  }

  @Test func `cancelling the caller of drain releases the running task`() async throws {
    let clock = time.clock
    let queue = await makeQueue { _, _ in try await clock.sleep(for: .seconds(60)) }
    try await queue.enqueue(Letter("long"))
    await withThrowingTaskGroup { group in
      group.addTask { _ = try await time.drain(queue) }
      await time.advance(by: .seconds(1))
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.next() }
    }
    let left = try await queue.pendingTasks(of: Letter.self)
    #expect(left.map(\.record.state) == [.waiting])
    #expect(left.map(\.record.retryCount) == [0])
  }
}
