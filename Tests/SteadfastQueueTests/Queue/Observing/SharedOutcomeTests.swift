import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests outcomes that a queue reads from a store that it shares with other processes.
@Suite(.virtualTime) struct SharedOutcomeTests {
  private let clock: VirtualClock
  private let store = SharedStore(StoreSharing(pollInterval: .seconds(5)))

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue that performs the tasks that another queue adds.
  private func makePerformingQueue(retaining retention: Retention = .none) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store.process(),
      configuration: TaskQueueConfiguration(succeededRetention: retention),
      clock: clock
    )
    await queue.register(Note.self) { [clock] _, context in
      context.report(progress: 0.5)
      try await clock.sleep(for: .seconds(7))
    }
    return queue
  }

  @Test(arguments: [(Retention.none, []), (.forever, [1])] as [(Retention, [Double])])
  func `the progress sequence of a task that another process performs ends with the task`(
    retention: Retention,
    expected: [Double]
  ) async throws {
    let observer = TaskQueue(persistence: store.process(), clock: clock)
    let performer = await makePerformingQueue(retaining: retention)
    try await withRunning(observer) {
      try await withRunning(performer) {
        let task = try await observer.enqueue(Note("a"))
        var fractions: [Double] = []
        for await fraction in task.progress { fractions.append(fraction) }
        #expect(fractions == expected)
        #expect(clock.now.offset < .seconds(30))
      }
    }
  }

  @Test(arguments: [Retention.none, .forever])
  func `in an idle queue, the progress sequence of a task that another process ended is empty`(
    retention: Retention
  ) async throws {
    let observer = TaskQueue(persistence: store.process(), clock: clock)
    let performer = await makePerformingQueue(retaining: retention)
    let task = try await observer.enqueue(Note("a"))
    #expect(try await performer.runAvailable() == 1)
    for await _ in task.progress { Issue.record("nothing was reported") }
  }

  @Test(arguments: [false, true])
  func `a value is available once the success is stored, even before it is reported`(
    isShared: Bool
  ) async throws {
    let base: any Persistence = isShared ? store.process() : InMemoryStore()
    let slow = FaultInjectingStore(base)
    slow.inject(.delay(.seconds(12), on: clock), .afterEffect) { $0.changes.contains("succeed") }
    let configuration = TaskQueueConfiguration(succeededRetention: .forever)
    let queue = TaskQueue(persistence: slow, configuration: configuration, clock: clock)
    await queue.register(Note.self) { note, _ in note.text }
    let id = try await queue.enqueue(Note("a")).id
    let task = try #require(try await queue.task(id))
    let value = try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      return try await task.value(as: String.self)
    }
    #expect(value == "a")
    #expect(clock.now.offset == .seconds(12))
  }

  @Test func `an outcome is available once a cancellation is stored, even before it is reported`()
    async throws
  {
    let slow = FaultInjectingStore(store.process())
    slow.inject(.hang, .afterEffect) { $0.changes.contains("cancel") }
    let queue = TaskQueue(persistence: slow, clock: clock)
    let task = try await queue.enqueue(Note("a"))
    async let isCancelled = task.cancel()
    try await slow.waitForHeldCalls()
    #expect(try await task.record() == nil)
    async let outcome = task.outcome()
    // After a second, the call has found nothing in the store.
    try await clock.sleep(for: .seconds(1))
    slow.letGo()
    #expect(try await outcome == .cancelled)
    #expect(try await isCancelled)
  }

  @Test func `a lookup that started before a restart doesn't report the earlier outcome`()
    async throws
  {
    let slow = FaultInjectingStore(store.process())
    let retaining = TaskQueueConfiguration(cancelledRetention: .forever)
    let queue = TaskQueue(persistence: slow, configuration: retaining, clock: clock)
    let task = try await queue.enqueue(Note("a"))
    let other = TaskQueue(
      persistence: store.process(),
      configuration: retaining,
      clock: clock
    )
    #expect(try await other.cancel(task.id))
    slow.inject(.hang, .afterEffect) { $0.kind == .tasks }
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.core.results.reportStoredOutcomes(of: [task.id]) }
      try await slow.waitForHeldCalls()
      #expect(try await queue.retry(task.id))
      slow.letGo()
      try await group.waitForAll()
    }
    #expect(queue.core.observers.outcomes.handle(of: task.id).outcome == nil)
  }

  @Test func `a lookup that started before a cancellation doesn't reset the outcome`() async throws
  {
    let slow = FaultInjectingStore(store.process())
    let retaining = TaskQueueConfiguration(cancelledRetention: .forever)
    let queue = TaskQueue(persistence: slow, configuration: retaining, clock: clock)
    let task = try await queue.enqueue(Note("a"))
    // Another queue of the group has restarted the task along with a dependency.
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: clock.date)
    slow.inject(.hang, .afterEffect) { $0.kind == .tasks }
    try await withThrowingTaskGroup { group in
      group.addTask {
        await queue.core.results.applyConsequences(Consequences(tasks: [task.id]), of: restart)
      }
      try await slow.waitForHeldCalls()
      #expect(try await queue.cancel(task.id))
      slow.letGo()
      try await group.waitForAll()
    }
    #expect(queue.core.observers.outcomes.handle(of: task.id).outcome == .cancelled)
  }
}
