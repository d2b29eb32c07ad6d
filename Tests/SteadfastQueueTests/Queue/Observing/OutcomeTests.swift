import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

@Suite struct OutcomeTests {
  private let clock = VirtualClock()

  private func makeQueue(retaining retention: Retention = .none) async -> TaskQueue {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(succeededRetention: retention),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in }
    return queue
  }

  @Test func `the outcome is available after the task has ended`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("done"))
    try await queue.runAvailable()
    #expect(try await task.outcome() == .succeeded)
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `a duplicate returns the outcome of the existing task`() async throws {
    let queue = await makeQueue(retaining: .forever)
    let options = TaskOptions(uniqueFor: .seconds(3600))
    let first = try await queue.enqueue(Note("once"), uniqueKey: "k", options: options)
    let second = try await queue.enqueue(Note("twice"), uniqueKey: "k")
    #expect(first.isNew && !second.isNew)
    #expect(first.id == second.id)
    try await queue.runAvailable()
    #expect(try await second.outcome() == .succeeded)
    // Only the store still contains the outcome.
    let third = try await queue.enqueue(Note("thrice"), uniqueKey: "k")
    #expect(third.id == first.id)
    #expect(try await third.outcome() == .succeeded)
  }

  /// A call that removes a succeeded, retained task.
  enum Removal: CaseIterable { case remove, removeAll }

  @Test(arguments: Removal.allCases)
  func `removing a succeeded task doesn't report it as cancelled`(
    removal: Removal
  ) async throws {
    let queue = await makeQueue(retaining: .forever)
    let task = try await queue.enqueue(Note("done"), uniqueKey: "k")
    try await queue.runAvailable()
    var events = queue.events.makeAsyncIterator()
    switch removal {
    case .remove: #expect(try await queue.remove(task.id))
    case .removeAll: #expect(try await queue.remove(matching: TaskFilter(names: ["Note"])) == 1)
    }
    #expect(try await task.outcome() == .succeeded)
    #expect(try await queue.count(matching: TaskFilter(ids: [task.id])) == 0)
    let last = try await queue.enqueue(Note("last"))
    while let event = await events.next() {
      if case .enqueued(let record) = event, record.id == last.id { break }
      if case .cancelled = event { Issue.record("the queue reported a cancellation") }
    }
  }

  @Test func `adding a rejected duplicate throws an error that names the key`() async throws {
    let queue = await makeQueue()
    let first = try await queue.enqueue(Note("one"), uniqueKey: "k")
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note("two"), uniqueKey: "k", onDuplicate: .reject)
    }
    #expect(error?.code == .duplicate)
    #expect(
      error?.message
        == "the task \(first.id) already has the unique key 'k'; get that task with task(_:), or "
        + "give the new task another key or another onDuplicate"
    )
  }

  @Test func `a shutdown ends waits for outcomes of unfinished tasks with an error`()
    async throws
  {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("never"), availableDate: clock.date + 1000)
    await withTaskGroup { group in
      group.addTask {
        let error = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
        #expect(error?.code == .shutDown)
      }
      group.addTask { await queue.shutDown() }
    }
    let late = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
    #expect(late?.code == .shutDown)
  }

  @Test func `waiting for an outcome can be cancelled without affecting the task`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("patient"))
    await withTaskGroup { group in
      group.addTask {
        await #expect(throws: CancellationError.self) { try await task.outcome() }
      }
      group.cancelAll()
    }
    try await queue.runAvailable()
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `removing an ended task doesn't change its outcome`() async throws {
    let queue = await makeQueue()
    await queue.register(Note.self) { _, _ in throw TaskAbandoned("no such album") }
    let task = try await queue.enqueue(Note("dead letter"))
    try await queue.runAvailable()
    let events = queue.events
    #expect(try await queue.remove(task.id))
    #expect(try await task.outcome() == .abandoned(reason: "no such album"))
    try await queue.enqueue(Note("last"))
    for await event in events {
      if case .cancelled = event { Issue.record("an ended task was cancelled") }
      if case .enqueued = event { break }
    }
  }

  @Test func `outcomes are stored only for tasks that a caller retains`() async throws {
    let queue = await makeQueue()
    for number in 1...100 { try await queue.enqueue(Note("\(number)")) }
    #expect(queue.core.observers.outcomes.count == 0)
    let task = try await queue.enqueue(Note("held"))
    #expect(queue.core.observers.outcomes.count == 1)
    withExtendedLifetime(task) {}
  }
}

@Suite struct OutcomeRegistryTests {
  @Test func `each task has its own outcome, and awaited tasks are listed`() async throws {
    let registry = OutcomeRegistry()
    let ids = (1...100).map { TaskID.numbered($0) }
    let handles = ids.map { registry.handle(of: $0) }
    let again = registry.handle(of: ids[0])
    #expect(registry.count == 100)
    for (number, id) in ids.enumerated() where number < 50 {
      registry.resolve(id, number.isMultiple(of: 2) ? .succeeded : .cancelled, value: number)
    }
    for (number, handle) in handles.enumerated() {
      #expect(
        handle.outcome == (number < 50 ? number.isMultiple(of: 2) ? .succeeded : .cancelled : nil)
      )
      #expect(handle.value as? Int == (number < 50 ? number : nil))
    }
    #expect(again.outcome == .succeeded)
    #expect(registry.awaited.isEmpty)
    let outcomes = await withTaskGroup { group in
      for handle in handles[50...] {
        // When this check runs, the task is listed. The error that the check throws ends the wait.
        group.addTask {
          try? await handle.wait {
            #expect(registry.awaited.contains(handle.id))
            return CancellationError()
          }
        }
      }
      return await group.reduce(into: []) { $0.append($1) }
    }
    #expect(outcomes.count == 50 && outcomes.allSatisfy { $0 == nil })
    withExtendedLifetime((handles, again)) {}
  }

  @Test func `handles can be created and released on several threads at once`() async {
    let registry = OutcomeRegistry()
    await withTaskGroup { group in
      for _ in 0..<4 {
        group.addTask { for _ in 0..<20_000 { _ = registry.handle(of: .numbered(1)) } }
      }
    }
    #expect(registry.count == 0)
  }
}

@Suite(.virtualTime) struct DestroyedOutcomeTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test(arguments: [false, true])
  func `destroying a queue ends waits for outcomes with an error that says it was destroyed`(
    isInGroup: Bool
  ) async throws {
    let group = TaskQueueGroup(clock: clock)
    let queue = isInGroup ? try await group.addQueue("a") : TaskQueue(clock: clock)
    let task = try await queue.enqueue(Note("never"), availableDate: clock.date + 1000)
    await withThrowingTaskGroup { tasks in
      tasks.addTask {
        let error = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
        #expect(error?.code == .destroyed)
      }
      tasks.addTask {
        let error = await #expect(throws: TaskQueueError.self) { try await queue.waitUntilIdle() }
        #expect(error?.code == .destroyed)
      }
      try? await clock.sleep(for: .seconds(1))
      try? await isInGroup ? group.destroy() : queue.destroy()
    }
    let late = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
    #expect(late?.code == .destroyed)
  }

  @Test func `if a queue can't be destroyed, waits for outcomes end with a shutdown error`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.error(Refusal())) { $0.kind == .destroy }
    let queue = TaskQueue(persistence: store, clock: clock)
    let task = try await queue.enqueue(Note("never"), availableDate: clock.date + 1000)
    await withThrowingTaskGroup { tasks in
      tasks.addTask {
        let error = await #expect(throws: TaskQueueError.self) { try await task.outcome() }
        #expect(error?.code == .shutDown)
      }
      try? await clock.sleep(for: .seconds(1))
      await #expect(throws: Refusal.self) { try await queue.destroy() }
    }
  }
}
