import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct SharingTests {
  private let clock: VirtualClock
  private let store = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5))
  )
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue of a process, whose tasks each take the number of seconds in their text.
  private func makeQueue(named name: String, on process: SharedStore.Process) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: process,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] note, context in
      log.add(
        "\(name) begins \(note.text) (\(context.interruptionCount)) at \(clock.now.offset.components.seconds)"
      )
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
      log.add("\(name) ends \(note.text)")
    }
    return queue
  }

  @Test func `each task is performed by exactly one of the queues`() async throws {
    let a = await makeQueue(named: "a", on: store.process())
    let b = await makeQueue(named: "b", on: store.process())
    let tasks = try await a.enqueue(contentsOf: (1...20).map { Note("\($0)") })
    try await withRunning(a) {
      try await withRunning(b) {
        for task in tasks { _ = try await b.waitUntilRemoved(task.id, on: clock) }
      }
    }
    let begun = log.entries.filter { $0.contains("begins") }
    #expect(begun.count == 20)
    #expect(Set(begun.map { $0.split(separator: " ")[2] }).count == 20)
    #expect(begun.contains { $0.hasPrefix("a") } && begun.contains { $0.hasPrefix("b") })
  }

  @Test func `a look-up shows who performs a task, and that its process has ended`() async throws {
    let process = store.process()
    let a = TaskQueue(
      name: "mails",
      persistence: process,
      configuration: TaskQueueConfiguration(programVersion: "1.2"),
      clock: clock
    )
    await a.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(500)) }
    let reader = TaskQueue(name: "mails", persistence: store.process(), clock: clock)
    let task = try await reader.enqueue(Note("a"))
    #expect(try await task.record()?.claim == nil)
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(50))
      let claim = try #require(try await task.record()?.claim)
      #expect(claim.holder.hasSuffix(" \(ProcessInfo.processInfo.processIdentifier) mails 1.2"))
      #expect(claim.date <= clock.date - 45)
      #expect(try #require(claim.endDate) > clock.date)
      process.die()
      try await clock.sleep(for: .seconds(61))
      #expect(try #require(try await task.record()?.claim?.endDate) < clock.date)
      process.revive()
    }
    #expect(try await task.record()?.claim == nil)
  }

  @Test(arguments: ["", String(repeating: "é", count: 40)])
  func `the text that names a process has at most 64 bytes`(version: String) {
    let holder = TaskClaim.holder(ofQueue: "queue", programVersion: version)
    #expect(holder.utf8.count <= 64)
    #expect(holder.contains(" \(ProcessInfo.processInfo.processIdentifier) queue"))
    #expect(holder.contains("é") == !version.isEmpty)
  }

  @Test(arguments: [false, true])
  func `a queue that gets a hint from the store finds a new task before the next poll`(
    givesHints: Bool
  ) async throws {
    let store = SharedStore(StoreSharing(pollInterval: .seconds(5)), givesHints: givesHints)
    let a = TaskQueue(persistence: store.process(), clock: clock)
    let b = await makeQueue(named: "b", on: store.process())
    try await withRunning(b) {
      try await clock.sleep(for: .seconds(1))
      let task = try await a.enqueue(Note("0"))
      try await clock.sleep(for: .seconds(1))
      #expect(try await a.contains(task.id) == !givesHints)
    }
    #expect(log.entries.first.map { $0.hasSuffix("at 1") } ?? false == givesHints)
  }

  @Test func `hints from the store lead to outcomes before the next poll`() async throws {
    let store = SharedStore(StoreSharing(pollInterval: .seconds(500)), givesHints: true)
    let retaining = TaskQueueConfiguration(succeededRetention: .forever)
    let a = TaskQueue(persistence: store.process(), configuration: retaining, clock: clock)
    let b = TaskQueue(persistence: store.process(), configuration: retaining, clock: clock)
    await b.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(7)) }
    try await withRunning(a) {
      try await withRunning(b) {
        let tasks = try await a.enqueue(contentsOf: (1...600).map { Note("\($0)") })
        try await a.cancel(matching: TaskFilter(ids: Set(tasks.dropFirst().map(\.id))))
        #expect(try await tasks[0].outcome() == .succeeded)
        #expect(clock.now.offset == .seconds(7))
      }
    }
  }

  @Test func `a clock that moves back doesn't adjust dates in a shared store`() async throws {
    let queue = TaskQueue(persistence: store.process(), clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal() }
    let task = try await queue.enqueue(Note("0"))
    try await queue.runAvailable()
    let before = try #require(try await task.record())
    clock.setDate(clock.date - 3600)
    try await queue.enqueue(Note("0"))
    #expect(try await queue.runAvailable() == 1)
    let after = try #require(try await task.record())
    #expect(after.failedDate == before.failedDate && after.availableDate == before.availableDate)
  }

  @Test func `a lease is extended while its task runs`() async throws {
    let a = await makeQueue(named: "a", on: store.process())
    let b = await makeQueue(named: "b", on: store.process())
    let task = try await a.enqueue(Note("600"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      try await withRunning(b) { _ = try await task.outcome() }
    }
    #expect(log.entries == ["a begins 600 (0) at 0", "a ends 600"])
  }

  @Test(arguments: [Retention.none, .forever])
  func `a waiter gets a success even if storing it takes longer than the poll interval`(
    retention: Retention
  ) async throws {
    let slow = FaultInjectingStore(store.process())
    slow.inject(.delay(.seconds(12), on: clock), .afterEffect) { $0.changes.contains("succeed") }
    let configuration = TaskQueueConfiguration(succeededRetention: retention)
    let queue = TaskQueue(persistence: slow, configuration: configuration, clock: clock)
    await queue.register(Note.self) { note, _ in note.text }
    let task = try await queue.enqueue(Note("a"))
    let value = try await withRunning(queue) { try await task.value(as: String.self) }
    #expect(value == "a")
    #expect(clock.now.offset == .seconds(12))
  }

  @Test func `a lease is extended while a cancelled attempt winds down`() async throws {
    let time = try #require(VirtualTime.current)
    let a = TaskQueue(persistence: store.process(), clock: clock)
    await a.register(Note.self) { [clock, log] _, _ in
      log.add("a begins")
      // The handler ignores its cancellation.
      await Task(executorPreference: time.executor) {
        try? await clock.sleep(for: .seconds(600))
      }.value
      log.add("a ends")
    }
    let b = await makeQueue(named: "b", on: store.process())
    try await a.enqueue(Note("600"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await a.run() }
      try await clock.sleep(for: .seconds(1))
      group.cancelAll()
      try await withRunning(b) { try await clock.sleep(for: .seconds(900)) }
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    #expect(log.entries == ["a begins", "a ends"])
    #expect(try await b.count == 0)
  }

  @Test func `a lease is extended until the result of the attempt is stored`() async throws {
    let held = FaultInjectingStore(store.process())
    held.inject(.hang) { $0.changes.contains("succeed") }
    let a = TaskQueue(persistence: held, clock: clock)
    await a.register(Note.self) { [log] _, _ in log.add("a") }
    let b = await makeQueue(named: "b", on: store.process())
    try await a.enqueue(Note("1"))
    try await withRunning(a) {
      try await withRunning(b) {
        try await clock.sleep(for: .seconds(600))
        held.letGo()
        try await clock.sleep(for: .seconds(600))
      }
    }
    #expect(log.entries == ["a"])
    #expect(try await b.count == 0)
  }

  @Test func `a queue that extends its leases too late doesn't claim its running tasks again`()
    async throws
  {
    let late = FaultInjectingStore(store.process())
    late.inject(.delay(.seconds(200), on: clock), .beforeEffect) { $0.changes.contains("extend") }
    let queue = TaskQueue(
      persistence: late,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] _, context in
      log.add("begins (\(context.interruptionCount))")
      try await clock.sleep(for: .seconds(300))
      log.add("ends")
    }
    // The queue polls for a second task every five seconds.
    let task = try await queue.enqueue(Note("300"))
    try await withRunning(queue) { try await queue.waitUntilRemoved(task.id, on: clock) }
    #expect(log.entries == ["begins (0)", "ends"])
  }

  @Test func `tasks of a terminated process are taken over when their leases expire`()
    async throws
  {
    let dying = store.process()
    let a = await makeQueue(named: "a", on: dying)
    let b = await makeQueue(named: "b", on: store.process())
    let task = try await a.enqueue(Note("30"))
    await withThrowingTaskGroup { group in
      group.addTask { try await a.run() }
      try? await clock.sleep(for: .seconds(1))
      dying.die()
      try? await withRunning(b) { _ = try await b.waitUntilRemoved(task.id, on: clock) }
      group.cancelAll()
      dying.revive()
    }
    // The terminated process ended its attempt, but couldn't store the result in time.
    #expect(
      log.entries == [
        "a begins 30 (0) at 0", "a ends 30", "b begins 30 (1) at 60",
        "b ends 30",
      ]
    )
  }

  @Test func `an attempt that lost its lease is cancelled, and overwrites nothing`() async throws {
    let suspended = store.process()
    let a = await makeQueue(named: "a", on: suspended)
    let b = await makeQueue(named: "b", on: store.process())
    let task = try await a.enqueue(Note("300"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      suspended.die()
      try await withRunning(b) {
        try await clock.sleep(for: .seconds(120))
        suspended.revive()
        _ = try await b.waitUntilRemoved(task.id, on: clock)
      }
    }
    #expect(
      log.entries == [
        "a begins 300 (0) at 0", "b begins 300 (1) at 60", "b ends 300",
      ]
    )
  }

  @Test func `a task added by another process is found`() async throws {
    let a = await makeQueue(named: "a", on: store.process())
    let b = await makeQueue(named: "b", on: store.process())
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(3_601))
      let task = try await b.enqueue(Note("1"))
      try await b.waitUntilRemoved(task.id, on: clock)
    }
    #expect(log.entries.first == "a begins 1 (0) at 3605")
  }

  @Test
  func `a task that another process ended isn't reported as cancelled, and its outcome throws`()
    async throws
  {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let log = Log<String>()
    let pa = shared.process()
    let a = TaskQueue(persistence: pa, clock: clock)
    let b = TaskQueue(persistence: shared.process(), clock: clock)
    await a.register(handler: LoggingHandler(log: log, name: "a", clock: clock))
    await b.register(handler: LoggingHandler(log: log, name: "b", clock: clock))
    let task = try await a.enqueue(Note("x"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      pa.die()
      try await withRunning(b) {
        try await clock.sleep(for: .seconds(150))
        pa.revive()
        try await clock.sleep(for: .seconds(1))
        #expect(!log.entries.contains("a willEnd cancelled"), "\(log.entries)")
        try await clock.sleep(for: .seconds(1000))
        #expect(try await b.contains(task.id) == false)
        // The task wasn't retained, so only the other process knows its outcome.
        let error = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
        #expect(error?.code == .unknownTask)
      }
    }
  }

  @Test func `a task is cancelled although another process has just claimed it`() async throws {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let slow = FaultInjectingStore(shared.process())
    slow.inject(.delay(.seconds(10), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    let a = TaskQueue(persistence: slow, clock: clock)
    let b = TaskQueue(persistence: shared.process(), clock: clock)
    let log = Log<String>()
    await a.register(Note.self) { _, _ in log.add("a") }
    await b.register(Note.self) { [clock] _, _ in
      log.add("b")
      try await clock.sleep(for: .seconds(30))
      throw Refusal()
    }
    try await withRunning(a) {
      try await withRunning(b) {
        try await clock.sleep(for: .milliseconds(5100))
        let task = try await b.enqueue(Note("x"), maxRetries: 5)
        try await clock.sleep(for: .seconds(2))
        #expect(try await a.cancel(task.id), "\(log.entries)")
        try await clock.sleep(for: .seconds(12))
        #expect(try await a.tasks().isEmpty)
      }
      try await clock.sleep(for: .seconds(200))
      #expect(log.entries == ["b"])
    }
  }
}

extension TaskQueue {
  /// Waits until the store no longer contains the task.
  nonisolated func waitUntilRemoved(_ id: TaskID, on clock: VirtualClock) async throws {
    while try await contains(id) { try await clock.sleep(for: .seconds(1)) }
  }
}

/// A handler that logs its attempts and the outcomes of its tasks.
private struct LoggingHandler: TaskHandler {
  let log: Log<String>
  let name: String
  let clock: VirtualClock
  func perform(_ note: Note, in context: TaskContext) async throws {
    log.add("\(name) begins")
    try await clock.sleep(for: .seconds(300))
    log.add("\(name) ends")
  }
  func willEnd(_ note: Note, outcome: TaskOutcome, in context: TaskContext) async {
    log.add("\(name) willEnd \(outcome)")
  }
}
