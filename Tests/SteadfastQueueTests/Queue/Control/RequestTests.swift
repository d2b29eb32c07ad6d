import SteadfastTesting
import TestSupport
import Synchronization
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests commands, such as cancelling, for tasks whose claim or result is being stored.
@Suite(.virtualTime) struct RequestTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test(arguments: [false, true])
  func `a task that is resumed while its pause is being stored is performed again`(atOnce: Bool)
    async throws
  {
    let store = FaultInjectingStore(appliesAtOnce: atOnce)
    store.inject(.hang, times: nil) { $0.changes.contains("pause") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(100)) }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await queue.pause(task.id))
      try await clock.sleep(for: .milliseconds(500))
      let resumed = try await queue.resume(task.id)
      store.letGo()
      try await clock.sleep(for: .seconds(5000))
      let states = try await queue.tasks().map(\.state)
      #expect(resumed && states == [], "resume said \(resumed), states \(states)")
    }
  }

  /// Runs the body while a call that pauses a task looks the task up, after its retry was stored.
  ///
  /// The body must let the store continue.
  ///
  /// - Returns: The task, after the run has ended.
  private func whilePauseLooksUpTask(
    _ body: (TaskQueue, EnqueuedTask, FaultInjectingStore) async throws -> Void
  ) async throws -> EnqueuedTask {
    let store = FaultInjectingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal() }
    let task = try await queue.enqueue(Note("a"))
    store.inject(.hang) { $0.changes.contains("retry") }
    async let run = queue.runAvailable()
    try await store.waitForHeldCalls()
    #expect(try await queue.pause(task.id))
    store.inject(.hang) { $0.kind == .tasks }
    store.letGo()
    try await store.waitForHeldCalls()
    try await body(queue, task, store)
    #expect(try await run == 1)
    return task
  }

  @Test func `a resume waits until an earlier pause is stored`() async throws {
    let task = try await whilePauseLooksUpTask { queue, task, store in
      async let isResumed = queue.resume(task.id)
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      #expect(try await isResumed)
    }
    #expect(try await task.record()?.state == .waiting)
  }

  @Test func `a cancelled call doesn't wait for an earlier call while the store is unavailable`()
    async throws
  {
    let task = try await whilePauseLooksUpTask { queue, task, store in
      store.inject(.transientError, times: nil) { $0.kind == .count }
      async let count = queue.count
      await withTaskGroup { group in
        group.addTask { await #expect(throws: CancellationError.self) { try await task.cancel() } }
        try? await clock.sleep(for: .seconds(1))
        group.cancelAll()
      }
      store.restore()
      store.letGo()
      _ = try await count
    }
    #expect(try await task.record()?.state == .paused)
  }

  @Test
  func `a restart that the store confirms late doesn't erase the success of the restarted task`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect, times: nil) { $0.changes.contains("restart") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let on = Log<Void>()
    await queue.register(Note.self) { _, _ in if on.count == 0 { throw TaskAbandoned("x") } }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    on.add(())
    try await queue.enqueue(Note("tick"), availableDate: clock.date + 5)
    try await withRunning(queue) {
      async let n = queue.retry(matching: .deadLetters)
      try await clock.sleep(for: .seconds(50))
      // Before the call that stores the restart returns, the task is claimed and performed.
      let restarted = try await queue.tasks(matching: TaskFilter(ids: [task.id]))
      #expect(restarted.map(\.state) == [.running])
      store.letGo()
      #expect(try await n == 1)
      try await clock.sleep(for: .seconds(100))
      #expect(try await queue.count == 0)
      let outcome = try await task.outcome()
      #expect(outcome == .succeeded)
    }
  }

  @Test func `a task that is released while other results are being stored is performed again`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, times: nil) { $0.changes.contains("succeed") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let log = Log<String>()
    await queue.register(Note.self) { [clock] note, _ in
      log.add(note.text)
      if note.text == "T" { try await clock.sleep(for: .seconds(100)) }
    }
    try await queue.enqueue(Note("P"))
    let task = try await queue.enqueue(Note("T"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(log.entries == ["P", "T"])
      #expect(try await queue.pause(task.id))
      #expect(try await queue.resume(task.id))
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      try await clock.sleep(for: .seconds(5000))
      let states = try await queue.tasks().map(\.state)
      #expect(log.entries == ["P", "T", "T"], "\(log.entries) \(states)")
      store.letGo()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      try await clock.sleep(for: .seconds(1))
    }
  }

  @Test func `a task that is being released is cancelled after its release`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.kind == .claim }
    store.inject(.hang) { $0.changes.contains("release") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(Note("T"))
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      await queue.pause()
      store.letGo()
      try await store.waitForHeldCalls()
      async let isCancelled = task.cancel()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      #expect(try await isCancelled)
      #expect(try await task.outcome() == .cancelled)
    }
  }

  @Test func `a command that the store has confirmed isn't repeated after the task is restarted`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(10), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    store.inject(.hang, times: nil) { $0.changes.contains("retry") }
    store.inject(.hang, .afterEffect, times: nil) {
      $0.changes.contains("cancel(SteadfastQueue.TaskTarget.unclaimed")
    }
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(cancelledRetention: .forever),
      clock: clock
    )
    let log = Log<String>()
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      if log.count == 1 { throw Refusal() }
    }
    let task = try await queue.enqueue(Note("T"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(11))
      #expect(log.entries == ["T"])
      // The retry is being stored.
      #expect(try await task.cancel())
      store.letGo()
      try await clock.sleep(for: .seconds(1))
      // Before the first cancellation returns, another call cancels the task again.
      try await queue.enqueue(Note("tick"))
      async let isCancelledAgain = task.cancel()
      try await clock.sleep(for: .seconds(5))
      store.letGo()
      #expect(try await isCancelledAgain == false)
      try await clock.sleep(for: .seconds(100))
      #expect(try await task.outcome() == .cancelled)
      #expect(queue.core.dispatch.machine.withLock { $0.pendingCommands.isEmpty })
      #expect(try await queue.retry(matching: TaskFilter(states: [.cancelled])) == 1)
      try await clock.sleep(for: .seconds(100))
      store.letGo()
      try await clock.sleep(for: .seconds(100))
      let states = try await queue.tasks(matching: TaskFilter()).map(\.state)
      #expect(log.entries == ["T", "tick", "T"], "\(log.entries) \(states)")
      store.letGo()
    }
  }

  @Test func `a task restarted while dead letters are being removed is not removed`()
    async throws
  {
    let base = InMemoryStore()
    let store = FaultInjectingStore(base)
    store.inject(.hang, times: nil) { $0.changes.contains("remove") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw TaskAbandoned("x") }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    async let removed = queue.remove(matching: .deadLetters)
    try await clock.sleep(for: .seconds(1))
    let restart = TaskChange.restart(.unclaimed(task.id), availableDate: clock.date)
    #expect(try await base.apply([restart], durability: .durable) == [.done])
    store.letGo()
    _ = try await removed
    #expect(try await queue.contains(task.id))
  }

  @Test func `cancelled tasks are retained as configured even if they never ran`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(cancelledRetention: Retention(maxCount: 10)),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(
      contentsOf: (0..<5000).map { Note("\($0)") },
      options: TaskOptions(availableDate: clock.date + 1e6)
    )
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      try await queue.cancelAll()
      try await clock.sleep(for: .seconds(1000))
      let n = try await queue.count(matching: TaskFilter(states: [.cancelled]))
      #expect(n < 400, "\(n)")
    }
  }

  @Test func `destroying a queue waits for its attempts until the calling task is cancelled`()
    async throws
  {
    let time = try #require(VirtualTime.current)
    let queue = TaskQueue(clock: clock)
    let log = Log<String>()
    await queue.register(Note.self) { [clock] _, _ in
      log.add("begins")
      // The handler ignores its cancellation.
      await Task(executorPreference: time.executor) {
        try? await clock.sleep(for: .seconds(100))
      }.value
      log.add("ends")
    }
    let task = try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      await withTaskGroup(of: Void.self) { destroying in
        destroying.addTask {
          await #expect(throws: CancellationError.self) { try await queue.destroy() }
          log.add("cancelled")
        }
        try? await clock.sleep(for: .seconds(1))
        destroying.cancelAll()
      }
      try await group.waitForAll()
    }
    #expect(log.entries == ["begins", "cancelled", "ends"], "\(log.entries)")
    // The queue was shut down, but nothing was removed.
    #expect(try await task.outcome() == .succeeded)
    #expect(try await queue.count == 0)
    try await queue.destroy()
    await #expect(throws: (any Error).self) { try await queue.count }
  }

  @Test func `the progress sequence ends when the queue is shut down`() async throws {
    let queue = TaskQueue(clock: clock)
    let task = try await queue.enqueue(Note("a"), availableDate: clock.date + 1000)
    async let fractions = task.progress.reduce(into: []) { $0.append($1) }
    try await withRunning(queue) { try await clock.sleep(for: .seconds(1)) }
    #expect(await fractions == [])
  }
}
