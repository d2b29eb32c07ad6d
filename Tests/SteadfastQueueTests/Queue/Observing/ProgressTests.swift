import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct ProgressTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    _ handler: @escaping @Sendable (TaskContext) async throws -> Void
  ) async -> TaskQueue {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(backoff: .constant(.seconds(1))),
      clock: clock
    )
    await queue.register(Note.self) { _, context in try await handler(context) }
    return queue
  }

  @Test func `a caller gets the progress of its task until the task ends`() async throws {
    let queue = await makeQueue { [clock] context in
      for percent in [0, 25, 50] {
        context.report(progress: Double(percent) / 100)
        try await clock.sleep(for: .seconds(1))
      }
    }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      var fractions: [Double] = []
      for await fraction in task.progress { fractions.append(fraction) }
      #expect(fractions == [0, 0.25, 0.5, 1])
    }
  }

  @Test func `a failed attempt resets the progress`() async throws {
    let queue = await makeQueue { [clock] context in
      context.report(progress: 0.75)
      try await clock.sleep(for: .seconds(1))
      if context.retryCount == 0 { throw Refusal() }
    }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      var fractions: [Double] = []
      for await fraction in task.progress { fractions.append(fraction) }
      #expect(fractions == [0.75, 0, 0.75, 1])
    }
  }

  @Test func `in a task's own handler, its progress sequence yields the last value, and then ends`()
    async throws
  {
    let fractions = Log<Double>()
    let queue = await makeQueue { context in
      context.report(progress: 0.25)
      let task = try #require(try await context.queue.task(context.id))
      for await fraction in task.progress { fractions.add(fraction) }
      context.report(progress: 0.5)
    }
    let task = try await queue.enqueue(Note("a"))
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .succeeded)
    #expect(fractions.entries == [0.25])
  }

  @Test
  func `abandoning a task resets its progress to 0, and restarting it continues the sequence`()
    async throws
  {
    let queue = await makeQueue { context in
      context.report(progress: 0.75)
      throw TaskAbandoned("no")
    }
    let task = try await queue.enqueue(Note("a"))
    var fractions = task.progress.makeAsyncIterator()
    try await queue.runAvailable()
    #expect(await fractions.next() == 0)
    #expect(await fractions.next() == nil)
    await queue.register(Note.self) { _, _ in }
    try await queue.retry(task.id)
    try await queue.runAvailable()
    #expect(await fractions.next() == 1)
  }

  @Test func `restarting a succeeded task resets its progress to 0`()
    async throws
  {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(succeededRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    try await queue.retry(task.id)
    var fractions = task.progress.makeAsyncIterator()
    #expect(await fractions.next() == 0)
  }

  @Test func `progress is clamped to 0...1, and NaN is ignored`()
    async throws
  {
    let queue = await makeQueue { context in
      for fraction in [-1, .nan, 7, 0.5] { context.report(progress: fraction) }
    }
    try await queue.enqueue(Note("a"))
    let events = queue.events
    try await queue.runAvailable()
    var reported: [Double] = []
    for await event in events {
      if case .progressed(_, let fraction) = event { reported.append(fraction) }
      if case .succeeded = event { break }
    }
    #expect(reported == [0, 1, 0.5])
  }

  @Test func `progress of a cancelled or ended attempt is ignored`() async throws {
    let contexts = Log<TaskContext>()
    let queue = await makeQueue { [clock] context in
      contexts.add(context)
      defer { context.report(progress: 0.9) }
      try await clock.sleep(for: .seconds(60))
    }
    let task = try await queue.enqueue(Note("a"))
    let events = queue.events
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      try await task.cancel()
      _ = try await task.outcome()
      contexts.entries[0].report(progress: 0.95)
    }
    var kinds: [String] = []
    for await event in events {
      if case .progressed = event { kinds.append("progressed") }
      if case .cancelled = event { break }
    }
    #expect(kinds.isEmpty)
    var fractions: [Double] = []
    for await fraction in task.progress { fractions.append(fraction) }
    #expect(fractions.isEmpty)
  }

  @Test func `progress is ignored after the time limit, or after the run is cancelled`()
    async throws
  {
    let queue = await makeQueue { [clock] context in
      defer { context.report(progress: 0.9) }
      try await clock.sleep(for: .seconds(60))
    }
    let events = queue.events
    try await queue.enqueue(
      Note("slow"),
      maxRetries: 0,
      options: TaskOptions(timeLimit: .seconds(10))
    )
    try await queue.runAvailable()
    try await queue.enqueue(Note("cut off"))
    await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try? await clock.sleep(for: .seconds(1))
      group.cancelAll()
    }
    for await event in events {
      if case .progressed(let task, _) = event { Issue.record("\(task.id) reported") }
      if case .released = event { break }
    }
  }

  @Test func `the progress sequence of an ended task is empty`() async throws {
    let queue = await makeQueue { _ in throw TaskAbandoned("no") }
    let id = try await queue.enqueue(Note("a")).id
    try await queue.runAvailable()
    let task = try #require(try await queue.task(id))
    for await _ in task.progress { Issue.record("nothing was reported") }
    #expect(try await queue.remove(id))
    for await _ in task.progress { Issue.record("nothing was reported") }
  }

  @Test func `the progress sequence ends when the queue is shut down`() async throws {
    let queue = await makeQueue { _ in }
    let task = try await queue.enqueue(Note("later"), availableDate: clock.date + 60)
    await withTaskGroup { group in
      group.addTask { for await _ in task.progress { Issue.record("nothing was reported") } }
      group.addTask { [clock] in
        try? await clock.sleep(for: .seconds(1))
        await queue.shutDown()
      }
    }
    for await _ in task.progress { Issue.record("nothing was reported") }
  }

  @Test func `a cancelled observer stops waiting`() async throws {
    let queue = await makeQueue { _ in }
    let task = try await queue.enqueue(Note("a"))
    let count = await withTaskGroup { group in
      group.addTask { await task.progress.reduce(into: 0) { count, _ in count += 1 } }
      group.cancelAll()
      return await group.next()
    }
    #expect(count == 0)
    // The task is still waiting.
    #expect(try await queue.contains(task.id))
  }
}
