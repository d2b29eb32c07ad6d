import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests that the workers of a queue wake when there is work, or when results can be stored again.
@Suite(.virtualTime) struct AsyncSignalTests {
  private let time: VirtualTime
  private var clock: VirtualClock { time.clock }

  init() throws { time = try #require(VirtualTime.current) }

  @Test func `the workers continue after a slow store has caught up`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang) { $0.changes.contains("succeed") }
    let queue = TaskQueue(persistence: store, clock: clock)
    let performed = Counter()
    await queue.register(Note.self) { _, _ in performed.add(1) }
    let count = 3_000
    let tasks = try await queue.enqueue(contentsOf: (0..<count).map { Note("\($0)") })
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      // The workers wait, so that the results to be stored don't accumulate indefinitely.
      #expect(performed.value < count)
      store.letGo()
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
    #expect(performed.value == count)
  }

  @Test func `a cancelled run stores each result without waiting for the other attempts`()
    async throws
  {
    let queue = TaskQueue(
      persistence: FaultInjectingStore(),
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [clock, time] note, _ in
      // The handler ignores its cancellation.
      await Task(executorPreference: time.executor) {
        try? await clock.sleep(for: .seconds(Int(note.text) ?? 0))
      }.value
    }
    let tasks = try await queue.enqueue(contentsOf: [Note("10"), Note("1000")])
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      group.cancelAll()
      #expect(try await tasks[0].outcome() == .succeeded)
      #expect(clock.now.offset == .seconds(10))
      #expect(try await queue.tasks().map(\.id) == [tasks[1].id])
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
  }

  @Test func `an empty claim is repeated after a second if tasks are due`()
    async throws
  {
    let queue = TaskQueue(persistence: LateStore(until: clock.date + 0.5), clock: clock)
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(Note("a"))
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .succeeded)
    #expect(clock.now.offset == .seconds(1))
  }
}

/// A store that hands out nothing before a date, although it reports that a task is available.
private final class LateStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  private let start: Date

  init(until start: Date) { self.start = start }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    guard request.now >= start else { return Claim(tasks: [], nextDate: request.now) }
    return try await base.claim(request)
  }
}
