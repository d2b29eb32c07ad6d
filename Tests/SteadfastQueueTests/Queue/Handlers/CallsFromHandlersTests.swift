import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests calls of a handler that affect its own attempt.
@Suite(.virtualTime) struct CallsFromHandlersTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Performs one task, whose handler runs the body.
  private func performTask(
    timeLimit: Duration? = nil,
    _ body: @escaping @Sendable (TaskQueue, TaskContext) async throws -> Void
  ) async throws -> TaskOutcome {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [unowned queue] _, context in try await body(queue, context) }
    let options = TaskOptions(maxRetries: 0, timeLimit: timeLimit)
    let task = try await queue.enqueue(Note("a"), options: options)
    async let run: Void = queue.run()
    let outcome = try await task.outcome()
    await queue.shutDown()
    try await run
    return outcome
  }

  @Test(arguments: [nil, Duration.seconds(60)])
  func `a handler can't destroy its own queue`(
    limit: Duration?
  ) async throws {
    let outcome = try await performTask(timeLimit: limit) { queue, _ in
      let error = await queueError { try await queue.destroy() }
      #expect(error?.code == .waitsForItself)
    }
    #expect(outcome == .succeeded)
  }

  @Test(arguments: [nil, Duration.seconds(60)])
  func `a handler that shuts down its queue doesn't wait for its own attempt`(limit: Duration?)
    async throws
  {
    let outcome = try await performTask(timeLimit: limit) { queue, _ in
      await queue.shutDown()
      let error = await queueError { try await queue.run() }
      #expect(error?.code == .shutDown)
    }
    #expect(outcome == .succeeded)
    #expect(clock.now.offset == .zero)
  }

  @Test(arguments: [nil, Duration.seconds(60)])
  func `a handler can't wait for its own task's outcome, but can wait for another task's outcome`(
    limit: Duration?
  ) async throws {
    let outcome = try await performTask(timeLimit: limit) { queue, context in
      let task = try #require(try await queue.task(context.id))
      let error = await queueError { try await task.outcome() }
      #expect(error?.code == .waitsForItself)
      await queue.register(name: "Other") { _, _ in }
      let other = try await queue.enqueue(name: "Other")
      let end = try await other.outcome()
      #expect(end == .succeeded)
    }
    #expect(outcome == .succeeded)
  }

  @Test func `a handler adds tasks to its own queue with each overload`() async throws {
    let queue = TaskQueue(clock: clock)
    let children = Log<EnqueuedTask>()
    await queue.register(name: "parent") { _, context in
      children.add(
        try await context.enqueue(Note("one"), priority: .high, uniqueKey: "\(context.id)")
      )
      let options = TaskOptions(delay: .seconds(60), tags: ["child"])
      for task in try await context.enqueue(contentsOf: [Note("two")], options: options) {
        children.add(task)
      }
      children.add(try await context.enqueue(name: "JSON", ["three": 3], options: options))
    }
    let parent = try await queue.enqueue(name: "parent")
    #expect(try await queue.runAvailable() == 1)
    let records = try await queue.tasks()
    #expect(records.map(\.id) == children.entries.map(\.id))
    #expect(records.map(\.name) == ["Note", "Note", "JSON"])
    #expect(records.map(\.uniqueKey) == ["\(parent.id)", nil, nil])
    #expect(records.map(\.tags) == [[], ["child"], ["child"]])
    #expect(records[1].availableDate == clock.date.storable + 60)
    #expect(records[0].priority == .high)
    #expect(try records[0].payload(as: Note.self) == Note("one"))
  }

  /// Performs a task with metadata, whose handler runs the body.
  ///
  /// - Returns: The metadata of the other tasks, in the order in which they were added.
  private func metadataOfTasks(
    addedBy body: @escaping @Sendable (TaskContext) async throws -> Void
  ) async throws -> [[String: String]] {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(
        taskDefaults: TaskOptions(metadata: ["tenant": "none", "service": "shop"])
      ),
      clock: clock
    )
    await queue.register(name: "parent") { _, context in try await body(context) }
    let options = TaskOptions(metadata: ["tenant": "eins", "trace": "1"])
    let batch = try await queue.enqueue { tasks in
      let payload = try StoredPayload(JSONValue.null)
      let follower = tasks.nextID()
      try tasks.add(NewTask("parent", payload, nil, options), follower: follower)
      try tasks.add(NewTask("follower", payload, nil, TaskOptions()), id: follower)
    }
    let known = Set(batch.map(\.id))
    #expect(try await queue.runAvailable() == 1)
    return try await queue.tasks().filter { !known.contains($0.id) }.map(\.metadata)
  }

  private static let inherited = ["tenant": "eins", "trace": "1", "service": "shop"]

  @Test func `tasks that a handler adds inherit its task's metadata with each overload`()
    async throws
  {
    let found = try await metadataOfTasks { context in
      #expect(context.metadata == Self.inherited)
      try await context.enqueue(Note("one"))
      try await context.enqueue(contentsOf: [Note("two"), Note("three")])
      try await context.enqueue(name: "JSON", ["four": 4])
      try await context.enqueueInBatch(Note("five"))
      try await context.enqueueInBatch(contentsOf: [Note("six"), Note("seven")])
    }
    #expect(found == Array(repeating: Self.inherited, count: 7))
  }

  @Test func `a new task's own metadata overrides what it inherits`() async throws {
    let options = TaskOptions(metadata: ["tenant": "zwei", "own": "1"])
    let found = try await metadataOfTasks { context in
      try await context.enqueue(Note("one"), options: options)
      try await context.enqueue(contentsOf: [Note("two")], options: options)
      try await context.enqueue(name: "JSON", options: options)
      try await context.enqueueInBatch(Note("three"), options: options)
      try await context.enqueue(Described())
    }
    let own = Self.inherited.merging(options.metadata) { _, own in own }
    let described = Self.inherited.merging(["trace": "payload"]) { _, own in own }
    #expect(found == Array(repeating: own, count: 4) + [described])
  }

  /// A payload that sets metadata.
  private struct Described: TaskPayload {
    var options: TaskOptions { TaskOptions(metadata: ["trace": "payload"]) }
  }

  @Test func `inherited metadata counts for the limits of a new task`() async throws {
    let found = try await metadataOfTasks { context in
      let keys = (1...62).map { ("key \($0)", "") }
      let options = TaskOptions(metadata: Dictionary(uniqueKeysWithValues: keys))
      let error = await queueError { try await context.enqueue(Note("a"), options: options) }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message == "metadata has 65 keys; give at most 64")
    }
    #expect(found.isEmpty)
  }

  @Test func `a handler of an inner queue may shut down the outer queue`() async throws {
    let outcome = try await performTask { [clock] outer, _ in
      let inner = TaskQueue(clock: clock)
      await inner.register(Note.self) { _, _ in await outer.shutDown() }
      try await inner.enqueue(Note("b"))
      let attempts = try await inner.runAvailable()
      #expect(attempts == 1)
      await inner.shutDown()
    }
    #expect(outcome == .succeeded)
  }

  @Test(arguments: [nil, Duration.seconds(60)])
  func `a handler that cancels its own task is cancelled at once`(limit: Duration?) async throws {
    let outcome = try await performTask(timeLimit: limit) { queue, context in
      let isCancelled = try await queue.cancel(context.id)
      #expect(isCancelled)
      try Task.checkCancellation()
      Issue.record("the attempt wasn't cancelled")
    }
    #expect(outcome == .cancelled)
  }

  @Test func `a handler that cancels all tasks is cancelled at once`() async throws {
    let outcome = try await performTask { [clock] queue, _ in
      try await queue.enqueue(Note("later"), availableDate: clock.date + 60)
      let count = try await queue.cancelAll()
      #expect(count == 2)
      try Task.checkCancellation()
      Issue.record("the attempt wasn't cancelled")
    }
    #expect(outcome == .cancelled)
  }

  @Test func `an attempt is cancelled by the time that the cancelling call returns`() async throws {
    let queue = TaskQueue(clock: clock)
    let isCancelled = Log<Bool>()
    await queue.register(Note.self) { [clock] _, _ in
      await withTaskCancellationHandler {
        try? await clock.sleep(for: .seconds(60))
      } onCancel: {
        isCancelled.add(true)
      }
      try Task.checkCancellation()
    }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.cancel())
      #expect(isCancelled.entries == [true])
    }
  }
}
