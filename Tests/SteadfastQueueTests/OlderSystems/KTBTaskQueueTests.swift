import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests what the README and the headers of KTBTaskQueue, an older library, promise for a task.
///
/// The promises for a queue are in `KTBTaskQueueTests+Queue.swift`. The intended differences:
/// - A retry without backoff comes after the other available tasks, so that it doesn't starve them.
/// - The path of a queue is used unchanged; no ".db" is added to it.
/// - The queue doesn't poll. Its interval is only the base of the delays.
@Suite(.virtualTime, .timeLimit(.minutes(5))) struct KTBTaskQueueTests {
  let clock: VirtualClock
  let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// The whole seconds since the start of the test.
  var seconds: Int { Int(clock.now.offset / .seconds(1)) }

  /// A configuration with KTBTaskQueue's delays, but without jitter.
  var doubling: TaskQueueConfiguration {
    TaskQueueConfiguration(backoff: .exponential(from: .seconds(10), multiplier: 2))
  }

  /// Makes a queue with one handler, which performs all tasks and logs each attempt.
  ///
  /// The first `failures` attempts of each task fail.
  func queue(
    _ store: any Persistence = InMemoryStore(),
    _ configuration: TaskQueueConfiguration? = nil,
    failures: Int = 0,
    error: any Error & Sendable = Refusal()
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: configuration ?? doubling,
      clock: clock
    )
    await queue.registerFallback { [self] _, context in
      log.add("\(seconds) \(context.name)")
      if context.retryCount < failures { throw error }
    }
    return queue
  }

  // MARK: README

  @Test(arguments: StoreKind.allCases)
  func `a task is attempted until its execution reports success`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await queue(store, failures: 3)
      let task = try await queue.enqueue(name: "PostThisVitalThing", ["wow": "so important"])
      let outcome = try await withRunning(queue) { try await task.outcome() }
      #expect(outcome == .succeeded)
      #expect(log.entries == [0, 10, 30, 70].map { "\($0) PostThisVitalThing" })
      #expect(try await queue.count == 0)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task is attempted until its execution abandons the task`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, configuration: doubling, clock: clock)
      await queue.registerFallback { [log] _, context in
        log.add(context.name)
        if context.retryCount == 1 { throw TaskAbandoned("no such resource") }
        throw Refusal()
      }
      let task = try await queue.enqueue(name: "PostThisVitalThing")
      let outcome = try await withRunning(queue) { try await task.outcome() }
      #expect(outcome == .abandoned(reason: "no such resource"))
      #expect(log.count == 2)
      #expect(try await queue.count == 0)
    }
  }

  @Test func `a task is retried 10 times by default, then abandoned and removed from the queue`()
    async throws
  {
    let queue = await queue(failures: .max)
    let task = try await queue.enqueue(name: "PostThisVitalThing")
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .abandoned(reason: "refused"))
    #expect(log.count == 11)
    #expect(try await queue.contains(task.id) == false)
    #expect(try await queue.count == 0)
  }

  @Test(arguments: StoreKind.allCases)
  func `FutureTask is not attempted for a minute, then 4 times without delay`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await queue(store, failures: .max)
      let task = try await queue.enqueue(
        name: "FutureTask",
        options: TaskOptions(availableDate: clock.date + 60, maxRetries: 3, usesBackoff: false)
      )
      let outcome = try await withRunning(queue) { try await task.outcome() }
      #expect(outcome == .abandoned(reason: "refused"))
      #expect(log.entries == Array(repeating: "60 FutureTask", count: 4))
    }
  }

  @Test func `IReallyWantThisDone is retried until it succeeds, however often it fails`()
    async throws
  {
    let queue = await queue(InMemoryStore(), TaskQueueConfiguration(), failures: 100)
    let task = try await queue.enqueue(
      name: "IReallyWantThisDone",
      options: TaskOptions(maxRetries: .alwaysRetry, usesBackoff: true)
    )
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .succeeded)
    #expect(log.count == 101)
  }

  @Test func `a task enqueued offline remains stored, and succeeds once online`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        let queue = await queue(store, failures: .max)
        try await queue.enqueue(name: "PostThisVitalThing", ["wow": "so important"])
        #expect(try await queue.runAvailable() == 1)
        #expect(try await queue.count == 1)
      }
      try await file.inNewProcess { store in
        let queue = TaskQueue(persistence: store, configuration: doubling, clock: clock)
        await queue.registerFallback { [self] userInfo, context in
          log.add("\(seconds) \(context.retryCount) \(userInfo["wow"]?.string ?? "")")
        }
        let id = try #require(try await queue.tasks().first?.id)
        let task = try #require(try await queue.task(id))
        #expect(try await withRunning(queue) { try await task.outcome() } == .succeeded)
      }
      #expect(log.entries == ["0 PostThisVitalThing", "10 1 so important"])
    }
  }

  @Test func `a block or a delegate may perform tasks`() async throws {
    struct Delegate: TaskHandler {
      let log: Log<String>
      func perform(_ note: Note, in context: TaskContext) async throws {
        log.add("delegate: \(note.text)")
      }
    }
    let queue = await queue()
    await queue.register(handler: Delegate(log: log))
    try await queue.enqueue(Note("a"))
    try await queue.enqueue(name: "other")
    #expect(try await queue.runAvailable() == 2)
    #expect(log.entries == ["delegate: a", "0 other"])
  }

  // MARK: The task's header

  @Test func `a task has an id once it is enqueued, and its name need not be unique`() async throws
  {
    let queue = await queue()
    let first = try await queue.enqueue(name: "same")
    let second = try await queue.enqueue(name: "same")
    #expect(first.id != second.id)
    #expect(try await queue.count == 2)
    #expect(try await queue.runAvailable() == 2)
  }

  @Test func `a task carries any JSON, also after a restart`() async throws {
    let userInfo: JSONValue = [
      "text": "ü\n\u{2028}\"", "whole": 3, "half": 0.5, "yes": true, "none": nil,
      "list": [1, ["deep": []]],
    ]
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        let queue = TaskQueue(persistence: store, clock: clock)
        try await queue.enqueue(name: "all of JSON", userInfo)
      }
      try await file.inNewProcess { store in
        let queue = TaskQueue(persistence: store, clock: clock)
        let found = Log<JSONValue>()
        await queue.registerFallback { payload, _ in found.add(payload) }
        try await queue.runAvailable()
        #expect(found.entries == [userInfo])
      }
    }
  }

  @Test func `a record has the dates of creation and availability, by default equal`() async throws
  {
    let queue = await queue()
    let now = clock.date
    try await queue.enqueue(name: "now")
    try await queue.enqueue(name: "later", options: TaskOptions(availableDate: now + 60))
    let tasks = try await queue.tasks()
    #expect(tasks.map(\.createdDate) == [now, now])
    #expect(tasks.map(\.availableDate) == [now, now + 60])
    #expect(tasks.map(\.maxRetries) == [10, 10])
    #expect(tasks.map(\.usesBackoff) == [true, true])
  }

  @Test func `retryCount is 0 on the first attempt and grows with each failure`() async throws {
    let queue = TaskQueue(configuration: doubling, clock: clock)
    await queue.registerFallback { [log] _, context in
      log.add("\(context.retryCount) \(context.isLastAttempt)")
      throw Refusal()
    }
    let task = try await queue.enqueue(name: "counted", options: TaskOptions(maxRetries: 2))
    _ = try await withRunning(queue) { try await task.outcome() }
    // KTBTaskQueue's `canBeRetried` is the opposite of `isLastAttempt`.
    #expect(log.entries == ["0 false", "1 false", "2 true"])
  }

  @Test func `a task without backoff is retried at once, and does not delay other tasks`()
    async throws
  {
    let queue = await queue(failures: 2)
    try await queue.enqueue(name: "a", options: TaskOptions(usesBackoff: false))
    let last = try await queue.enqueue(name: "b", options: TaskOptions(usesBackoff: false))
    _ = try await withRunning(queue) { try await last.outcome() }
    #expect(log.entries == ["0 a", "0 b", "0 a", "0 b", "0 a", "0 b"])
  }

  @Test func `the configuration sets whether tasks use backoff by default`() async throws {
    let configuration = TaskQueueConfiguration(taskDefaults: TaskOptions(usesBackoff: false))
    let queue = await queue(InMemoryStore(), configuration, failures: 1)
    try await queue.enqueue(name: "by default")
    try await queue.enqueue(name: "chosen", options: TaskOptions(usesBackoff: true))
    #expect(try await queue.tasks().map(\.usesBackoff) == [false, true])
    try await queue.runAvailable()
    #expect(try await queue.runAvailable() == 1)
    #expect(log.entries.last == "0 by default")
  }
}
