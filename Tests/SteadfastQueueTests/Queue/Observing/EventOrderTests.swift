import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that a task's events arrive in the order in which its changes were stored.
///
/// In these tests, the store answers late.
@Suite(.virtualTime) struct EventOrderTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Returns the kinds of a task's events, up to the given one.
  private func eventKinds(
    in events: TaskEvents,
    of id: TaskID,
    through last: String
  ) async -> [String] {
    var kinds: [String] = []
    // The event of a missing handler doesn't depend on the store.
    for await event in events where event.id == id && event.kind != "unhandled" {
      kinds.append(event.kind)
      if event.kind == last { break }
    }
    return kinds
  }

  /// Performs a task whose first attempt throws.
  ///
  /// The second attempt starts before the store answers that the first attempt's result is stored.
  private func eventKinds(
    afterFirstAttemptThrows error: any Error,
    answering kind: String,
    atOnce: Bool
  ) async throws -> [String] {
    let store = FaultInjectingStore(appliesAtOnce: atOnce)
    store.inject(.hang, .afterEffect, times: nil) { $0.changes.contains(kind) }
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    let events = queue.events
    let attempts = Log<Void>()
    await queue.register(Note.self) { note, _ in
      guard note.text == "first" else { return }
      attempts.add(())
      if attempts.count == 1 { throw error }
    }
    let task = try await queue.enqueue(Note("first"), usesBackoff: false)
    return try await withRunning(queue) {
      try await clock.sleep(for: .seconds(10))
      // Adding a task makes workers claim tasks.
      try await queue.enqueue(Note("tick"))
      try await clock.sleep(for: .seconds(10))
      store.letGo()
      return await eventKinds(in: events, of: task.id, through: "succeeded")
    }
  }

  @Test(arguments: [false, true])
  func `the event of a failure precedes the event of the next attempt`(atOnce: Bool) async throws {
    let kinds = try await eventKinds(
      afterFirstAttemptThrows: Refusal(),
      answering: "retry",
      atOnce: atOnce
    )
    #expect(kinds == ["enqueued", "started", "failed", "started", "succeeded"])
  }

  @Test(arguments: [false, true])
  func `the event of a snooze precedes the event of the next attempt`(
    atOnce: Bool
  ) async throws {
    let kinds = try await eventKinds(
      afterFirstAttemptThrows: TaskSnoozed(for: .zero),
      answering: "retry",
      atOnce: atOnce
    )
    #expect(kinds == ["enqueued", "started", "snoozed", "started", "succeeded"])
  }

  @Test
  func `the event of a restart comes after the task's previous end and before its next start`()
    async throws
  {
    let slow = FaultInjectingStore()
    let store = FaultInjectingStore(slow)
    slow.inject(.hang, .afterEffect, times: nil) { $0.changes.contains("abandon") }
    store.inject(.hang, .afterEffect, times: nil) { $0.changes.contains("restart") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    let attempts = Log<Void>()
    await queue.register(Note.self) { note, _ in
      if note.text == "dead" { attempts.add(()) }
      if attempts.count == 1 { throw TaskAbandoned("x") }
    }
    let task = try await queue.enqueue(Note("dead"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      async let count = queue.retry(matching: .deadLetters)
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      try await queue.enqueue(Note("tick"))
      try await clock.sleep(for: .seconds(1))
      slow.letGo()
      #expect(try await count == 1)
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(
      await eventKinds(in: events, of: task.id, through: "succeeded")
        == ["enqueued", "started", "abandoned", "retried", "started", "succeeded"]
    )
  }

  @Test func `the event of a new task precedes the event of its replacement`() async throws {
    let slow = FaultInjectingStore()
    let store = FaultInjectingStore(slow)
    slow.inject(.hang, .afterEffect) { $0.changes.contains("insert") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    async let first = queue.enqueue(Note("first"), uniqueKey: "key")
    try await clock.sleep(for: .seconds(1))
    store.inject(.hang, .afterEffect) { $0.changes.contains("insert") }
    async let second = queue.enqueue(Note("second"), uniqueKey: "key", onDuplicate: .replace)
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    _ = try await second
    slow.letGo()
    let task = try await first
    let kinds = await eventKinds(in: events, of: task.id, through: "updated")
    #expect(kinds == ["enqueued", "updated"])
    #expect(try await task.record()?.payload(as: Note.self).text == "second")
  }

  @Test func `the event of a new task precedes the event of its cancellation`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.changes.contains("insert") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    async let first = queue.enqueue(Note("first"))
    try await clock.sleep(for: .seconds(1))
    #expect(try await queue.cancelAll() == 1)
    store.letGo()
    let task = try await first
    let kinds = await eventKinds(in: events, of: task.id, through: "cancelled")
    #expect(kinds == ["enqueued", "cancelled"])
  }

  @Test(arguments: [false, true])
  func `the event of a completion that arrives during an attempt precedes the attempt's end event`(
    suspends: Bool
  ) async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.changes.contains("complete") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    let tokens = Log<TaskToken>()
    await queue.register(Note.self) { [clock] _, context in
      let page = try await context.openCompletion("page", of: Int.self) { tokens.add($0) }
      // The completion arrives during this sleep.
      func work() async throws { try await clock.sleep(for: .seconds(10)) }
      if !suspends { try await work() }
      do {
        _ = try await page.value
      } catch let error as TaskSuspended {
        try await work()
        throw error
      }
    }
    let task = try await queue.enqueue(Note("a"))
    let reported = try await withRunning(queue) {
      try await clock.sleep(for: .seconds(5))
      async let isFirst = queue.complete(tokens.entries[0], with: 1)
      try await clock.sleep(for: .seconds(10))
      store.letGo()
      #expect(try await isFirst)
      return await eventKinds(in: events, of: task.id, through: "succeeded")
    }
    let end = suspends ? ["suspended", "started", "succeeded"] : ["succeeded"]
    #expect(reported == ["enqueued", "started", "completion"] + end)
    #expect(queue.core.observers.changes.count == 0)
  }

  @Test
  func `the event of a completion follows the event of the suspension that the completion ends`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.changes.contains("suspend") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    let tokens = Log<TaskToken>()
    await queue.register(Note.self) { _, context in
      _ = try await context.completion("page", of: Int.self) { tokens.add($0) }
    }
    let task = try await queue.enqueue(Note("a"))
    let reported = try await withRunning(queue) {
      try await clock.sleep(for: .seconds(5))
      async let isFirst = queue.complete(tokens.entries[0], with: 1)
      try await clock.sleep(for: .seconds(5))
      store.letGo()
      #expect(try await isFirst)
      return await eventKinds(in: events, of: task.id, through: "succeeded")
    }
    #expect(
      reported == ["enqueued", "started", "suspended", "completion", "started", "succeeded"]
    )
  }

  @Test func `concurrent commands for a task are carried out one after the other`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.changes.contains("pause") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    let task = try await queue.enqueue(Note("a"), availableDate: clock.date + 1e6)
    async let isPaused = queue.pause(task.id)
    try await clock.sleep(for: .seconds(1))
    async let isRestarted = queue.retry(task.id)
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    #expect(try await (isPaused, isRestarted) == (true, true))
    let kinds = await eventKinds(in: events, of: task.id, through: "retried")
    #expect(kinds == ["enqueued", "paused", "retried"])
    #expect(queue.core.observers.changes.count == 0)
  }

  @Test func `the event of a pause precedes the event of a later replacement`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.changes.contains("pause") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let events = queue.events
    let task = try await queue.enqueue(Note("first"), uniqueKey: "key")
    async let isPaused = queue.pause(task.id)
    try await clock.sleep(for: .seconds(1))
    async let second = queue.enqueue(Note("second"), uniqueKey: "key", onDuplicate: .replace)
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    _ = try await (isPaused, second)
    let kinds = await eventKinds(in: events, of: task.id, through: "updated")
    #expect(kinds == ["enqueued", "paused", "updated"])
  }
}

extension TaskEvent {
  /// The name of the event's case.
  fileprivate var kind: String { String("\(self)".prefix { !": ,".contains($0) }) }

  fileprivate var id: TaskID? {
    switch self {
    case .enqueued(let record), .started(let record), .progressed(let record, _),
      .failed(let record, _, _, _), .snoozed(let record, _), .suspended(let record, _),
      .succeeded(let record, _),
      .abandoned(let record, _, _), .superseded(let record, _), .released(let record),
      .unhandled(let record, _):
      record.id
    case .completionArrived(let id), .cancelled(let id), .paused(let id), .resumed(let id),
      .retried(let id),
      .rescheduled(let id, _), .updated(let id), .cancelledByDependency(let id, _),
      .batchProgressed(let id, _):
      id
    case .missed, .storeUnavailable, .occurrencesMissed, .scheduleParked, .rateLimited: nil
    @unknown default: nil
    }
  }
}
