import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct StoreFailureTests {
  /// The store fails after `calls` further calls.
  @Test(arguments: 1..<21, [false, true])
  func `a failing store stops the run, and nothing is lost`(
    calls: Int,
    appliesAtOnce: Bool
  ) async throws {
    let store = FaultInjectingStore(appliesAtOnce: appliesAtOnce)
    // Looking for tasks without a handler may fail without stopping the run.
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2, notice: nil),
      clock: VirtualClock()
    )
    let log = Log<String>()
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    let names = (1...5).map(String.init)
    for name in names { try await queue.enqueue(Note(name)) }
    let last = store.calls.count + calls
    store.inject(.error(Refusal("the disk is on fire")), times: nil) { $0.number > last }
    var failure: TaskQueueError?
    do {
      try await queue.runAvailable()
    } catch {
      failure = error as? TaskQueueError
      #expect(failure?.code == .storeFailed)
      #expect(failure?.message.contains("the disk is on fire") == true)
    }
    // If the run makes no more than `calls` calls, the store doesn't fail.
    #expect((failure != nil) == (store.calls.count > last))
    #expect(!queue.isProcessing)
    store.restore()
    try await queue.runAvailable()
    #expect(try await queue.count == 0)
    // Results that couldn't be stored at first were stored later. Their tasks didn't run again.
    #expect(log.entries.sorted() == names)
  }

  @Test(.virtualTime)
  func `if a task is no longer stored, a caller waits until the task's outcome is reported`()
    async throws
  {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("kept"), uniqueKey: "k")
    let twin = try await queue.enqueue(Note("kept"), uniqueKey: "k")
    store.inject(.hang, .afterEffect) { $0.changes.contains("succeed") }
    async let run = queue.runAvailable()
    try await store.waitForHeldCalls()
    async let outcome = twin.outcome()
    // After a second, the other Swift task has looked into the store.
    try await clock.sleep(for: .seconds(1))
    #expect(try await queue.count == 0)
    store.letGo()
    #expect(try await outcome == .succeeded)
    #expect(try await run == 1)
  }

  /// A command looks up its task, and then changes it.
  @Test(.virtualTime, arguments: [FaultInjectingStore.Call.Kind.tasks, .apply])
  func `a run stops if a command can't be stored, and the next run carries the command out`(
    kind: FaultInjectingStore.Call.Kind
  ) async throws {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal("not yet") }
    let events = queue.events
    let task = try await queue.enqueue(Note("slow"))
    store.inject(.hang) { $0.changes.contains("retry") }
    async let run = queue.runAvailable()
    try await store.waitForHeldCalls()
    // The attempt has ended, and the command waits until its result is stored.
    #expect(try await queue.cancel(task.id))
    store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == kind }
    store.letGo()
    do {
      _ = try await run
      Issue.record("the run didn't throw an error")
    } catch let error as TaskQueueError {
      #expect(error.code == .storeFailed)
      #expect(error.message.contains("the disk is on fire"))
    }
    #expect(try await queue.count == 1)
    #expect(try await queue.runAvailable() == 0)
    #expect(try await task.outcome() == .cancelled)
    #expect(try await queue.count == 0)
    await queue.shutDown()
    var cancelledCount = 0
    for await event in events { if case .cancelled = event { cancelledCount += 1 } }
    #expect(cancelledCount == 1)
  }

  @Test(.virtualTime)
  func `a pass that carries out a command waits for an unavailable store`()
    async throws
  {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore()
    store.inject(.hang) { $0.changes.contains("retry") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal("not yet") }
    let task = try await queue.enqueue(Note("slow"))
    async let run = queue.runAvailable()
    try await store.waitForHeldCalls()
    #expect(try await queue.cancel(task.id))
    store.inject(.transientError, times: 3) { $0.kind == .tasks }
    store.letGo()
    #expect(try await run == 1)
    #expect(try await task.outcome() == .cancelled)
  }

  @Test(.virtualTime)
  func `a command for a task whose attempt was cut short waits for an unavailable store`()
    async throws
  {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore()
    store.inject(.hang) { $0.changes.contains("pause") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in try await clock.sleep(for: .seconds(100)) }
    let task = try await queue.enqueue(Note("slow"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await queue.pause(task.id))
      // The worker stores the pause in a Swift task that is cancelled.
      try await store.waitForHeldCalls()
      #expect(try await queue.cancel(task.id))
      store.inject(.transientError, times: 3) { $0.kind == .tasks }
      store.letGo()
      #expect(try await task.outcome() == .cancelled)
    }
  }

  @Test(.virtualTime, arguments: [false, true])
  func `a waiter gets the outcome in the store after a call that failed, or an error`(
    atOnce: Bool
  ) async throws {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore(appliesAtOnce: atOnce)
    for retention in [Retention.forever, .none] {
      store.inject(.error(Refusal("the line is cut")), .afterEffect) {
        $0.changes.contains("succeed")
      }
      let configuration = TaskQueueConfiguration(succeededRetention: retention)
      let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
      await queue.register(Note.self) { note, _ in note.text }
      let task = try await queue.enqueue(Note("kept"))
      let error = await #expect(throws: TaskQueueError.self) { try await queue.runAvailable() }
      #expect(error?.code == .storeFailed)
      #expect(try await queue.runAvailable() == 0)
      if retention == .forever {
        #expect(try await task.outcome() == .succeeded)
      } else {
        // What is no longer in the store may have succeeded, or may have been removed.
        let error = await queueError { try await task.outcome() }
        #expect(error?.code == .unknownTask)
      }
    }
  }

  @Test(.virtualTime, arguments: [false, true])
  func `a waiter gets a cancellation that was stored by a call that failed`(
    atOnce: Bool
  ) async throws {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore(appliesAtOnce: atOnce)
    store.inject(.error(Refusal("the line is cut")), .afterEffect) { $0.changes.contains("cancel") }
    let configuration = TaskQueueConfiguration(cancelledRetention: .forever)
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(Note("later"), delay: .seconds(3_600))
    try await withRunning(queue) {
      async let outcome = task.outcome()
      try await clock.sleep(for: .seconds(1))
      await #expect(throws: Refusal.self) { try await task.cancel() }
      #expect(try await outcome == .cancelled)
    }
    #expect(clock.now.offset == .seconds(1))
    store.inject(.error(Refusal("the line is cut")), .afterEffect) { $0.changes.contains("cancel") }
    let other = try await queue.enqueue(Note("later"), delay: .seconds(3_600))
    await #expect(throws: Refusal.self) { try await other.cancel() }
    // This call starts to wait after the failed call, while no queue runs.
    #expect(try await other.outcome() == .cancelled)
  }

  @Test func `a task that can't be stored isn't enqueued`() async throws {
    let store = FaultInjectingStore(appliesAtOnce: true)
    store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == .apply }
    let queue = TaskQueue(persistence: store, clock: VirtualClock())
    let error = await #expect(throws: Refusal.self) { try await queue.enqueue(Note("lost")) }
    #expect(error?.description == "the disk is on fire")
    #expect(try await queue.count == 0)
  }
}
