import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the behaviour that KTBTaskQueue's headers promise for a queue and its delegate.
extension KTBTaskQueueTests {
  @Test(arguments: StoreKind.allCases)
  func `tasks run one at a time, in the order of their available dates`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.registerFallback { [log, clock] _, context in
        log.add("\(context.name) begins")
        try await clock.sleep(for: .seconds(5))
        log.add("\(context.name) ends")
      }
      try await queue.enqueue(name: "third", options: TaskOptions(availableDate: clock.date - 1))
      try await queue.enqueue(name: "first", options: TaskOptions(availableDate: clock.date - 3))
      try await queue.enqueue(name: "second", options: TaskOptions(availableDate: clock.date - 2))
      #expect(try await queue.runAvailable() == 3)
      #expect(
        log.entries == ["first", "second", "third"].flatMap { ["\($0) begins", "\($0) ends"] }
      )
    }
  }

  @Test func `the delay starts at 10 s and doubles with each retry, with a jitter of a tenth`()
    async throws
  {
    let queue = await queue(InMemoryStore(), TaskQueueConfiguration(), failures: 5)
    let task = try await queue.enqueue(name: "PostThisVitalThing")
    let events = queue.events
    _ = try await withRunning(queue) { try await task.outcome() }
    var delays: [Double] = []
    var started = Date.distantPast
    var dates = [clock.date - clock.now.offset / .seconds(1)]
    for await event in events {
      if case .failed(_, _, let date, _) = event {
        started = try #require(dates.last)
        delays.append(date.timeIntervalSince(started))
        dates.append(date)
      }
      if case .succeeded = event { break }
    }
    #expect(delays.count == 5)
    for (delay, expected) in zip(delays, [10.0, 20, 40, 80, 160]) {
      #expect(abs(delay - expected) <= expected / 10 + 0.001)
    }
  }

  @Test
  func `a custom backoff can double a chosen interval and subtract 1 s, as KTBTaskQueue does`()
    async throws
  {
    let backoff = Backoff.custom { attempt in
      .seconds(3) * (1 << min(attempt.number - 1, 20)) - .seconds(1)
    }
    let configuration = TaskQueueConfiguration(backoff: backoff)
    let queue = await queue(InMemoryStore(), configuration, failures: 3)
    let task = try await queue.enqueue(name: "t")
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(log.entries == ["0 t", "2 t", "7 t", "18 t"])
  }

  @Test(arguments: StoreKind.allCases)
  func `a suspended queue stores tasks, and resuming runs them`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await queue(store)
      await queue.pause()
      #expect(queue.isPaused)
      let task = try await queue.enqueue(name: "kept")
      let outcome = try await withRunning(queue) {
        try await clock.sleep(for: .seconds(3600))
        #expect(try await queue.count == 1)
        #expect(log.entries == [])
        await queue.resume()
        return try await task.outcome()
      }
      #expect(outcome == .succeeded)
      #expect(!queue.isPaused)
      #expect(log.entries == ["3600 kept"])
    }
  }

  @Test func `isProcessing is true only while a task is executed`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.registerFallback { [log] _, _ in log.add("\(queue.isProcessing)") }
    let task = try await queue.enqueue(
      name: "t",
      options: TaskOptions(availableDate: clock.date + 60)
    )
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(30))
      #expect(!queue.isProcessing)
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(!queue.isProcessing)
    #expect(log.entries == ["true"])
  }

  @Test func `a queue that prohibits backoff retries all tasks at once`() async throws {
    var configuration = doubling
    configuration.prohibitsBackoff = true
    let queue = await queue(InMemoryStore(), configuration, failures: 3)
    let task = try await queue.enqueue(name: "t", options: TaskOptions(usesBackoff: true))
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(log.entries == Array(repeating: "0 t", count: 4))
  }

  @Test func `tasks added while backoff is prohibited never use backoff`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        let configuration = TaskQueueConfiguration(prohibitsBackoff: true)
        let queue = await queue(store, configuration)
        try await queue.enqueue(name: "t", options: TaskOptions(usesBackoff: true))
      }
      try await file.inNewProcess { store in
        let queue = await queue(store, doubling, failures: 2)
        for _ in 1...3 { try await queue.runAvailable() }
        #expect(try await queue.count == 0)
        #expect(log.entries == Array(repeating: "0 t", count: 3))
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `count and contains consider only unfinished tasks`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await queue(store)
      #expect(try await queue.count == 0)
      #expect(try await queue.contains(name: "t") == false)
      let task = try await queue.enqueue(name: "t")
      try await queue.enqueue(name: "u")
      #expect(try await queue.count == 2)
      #expect(try await queue.contains(name: "t"))
      #expect(try await queue.contains(task.id))
      try await queue.runAvailable()
      #expect(try await queue.count == 0)
      #expect(try await queue.contains(name: "t") == false)
      #expect(try await queue.contains(task.id) == false)
    }
  }

  @Test func `deleting the queue deletes its file and tasks, and rejects later tasks`()
    async throws
  {
    try await withQueueFile { file in
      let queue = TaskQueue(persistence: JSONFileStore(at: file.url), clock: clock)
      try await queue.enqueue(name: "lost")
      #expect(FileManager.default.fileExists(atPath: file.url.path))
      try await queue.destroy()
      #expect(!FileManager.default.fileExists(atPath: file.url.path))
      await #expect(throws: (any Error).self) { try await queue.enqueue(name: "late") }
      try await file.inNewProcess { store in
        let count = try await TaskQueue(persistence: store).count
        #expect(count == 0)
      }
    }
  }

  @Test func `deleting a queue in memory deletes its tasks and rejects later tasks`() async throws {
    let queue = await queue()
    let task = try await queue.enqueue(name: "lost")
    try await queue.destroy()
    await #expect(throws: (any Error).self) { try await queue.enqueue(name: "late") }
    await #expect(throws: (any Error).self) { try await task.outcome() }
    #expect(log.entries == [])
  }

  // MARK: The delegate

  /// The counterpart of KTBTaskQueue's delegate, which logs its calls and may choose retry dates.
  private struct Delegate: TaskHandler {
    let log: Log<String>
    var chosenDelay: Double?

    func perform(_ note: Note, in context: TaskContext) async throws {
      log.add("execute \(note.text)")
      throw Refusal()
    }

    func retryDate(
      of note: Note,
      after error: any Error,
      proposed date: Date,
      in context: TaskContext
    ) async -> Date {
      log.add("will delay retry of \(note.text)")
      return chosenDelay.map { context.availableDate + $0 } ?? date
    }

    func willEnd(_ note: Note, outcome: TaskOutcome, in context: TaskContext) async {
      if case .abandoned(let reason) = outcome { log.add("will abandon \(note.text): \(reason)") }
    }
  }

  @Test func `the delegate is called before a task without remaining retries is abandoned`()
    async throws
  {
    let queue = TaskQueue(clock: clock)
    await queue.register(handler: Delegate(log: log))
    let task = try await queue.enqueue(Note("t"), maxRetries: 1, usesBackoff: false)
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(log.entries == ["execute t", "execute t", "will abandon t: refused"])
  }

  @Test func `the delegate may choose the date of a retry`() async throws {
    let queue = TaskQueue(configuration: doubling, clock: clock)
    await queue.register(handler: Delegate(log: log, chosenDelay: 100))
    let task = try await queue.enqueue(Note("t"), maxRetries: 2)
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(seconds == 200)
    #expect(log.entries.count { $0 == "will delay retry of t" } == 2)
  }

  @Test func `a delegate that returns the proposed date gets the queue's backoff`() async throws {
    let queue = TaskQueue(configuration: doubling, clock: clock)
    await queue.register(handler: Delegate(log: log))
    let task = try await queue.enqueue(Note("t"), maxRetries: 2)
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(seconds == 30)
  }

  @Test func `the delegate is not asked for a date when the task does not use backoff`()
    async throws
  {
    let queue = TaskQueue(configuration: doubling, clock: clock)
    await queue.register(handler: Delegate(log: log, chosenDelay: 100))
    let task = try await queue.enqueue(Note("t"), maxRetries: 2, usesBackoff: false)
    _ = try await withRunning(queue) { try await task.outcome() }
    #expect(seconds == 0)
    #expect(log.entries == Array(repeating: "execute t", count: 3) + ["will abandon t: refused"])
  }
}
