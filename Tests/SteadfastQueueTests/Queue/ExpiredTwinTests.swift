import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the unique keys of tasks that have expired.
@Suite(.virtualTime) struct ExpiredTwinTests {
  private let clock: VirtualClock
  private let log = Log<String>()
  private static let policies: [UniquePolicy] = [.keep, .replace, .join, .reject]

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// The reason why a task isn't attempted before its expiry date.
  enum Reason: CaseIterable {
    case queueIsPaused, queueDoesNotRun, conditionIsUnmet, taskIsPaused, taskIsSuspended
  }

  private func makeQueue(on store: some Persistence) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        backoff: .constant(.seconds(600))
      ),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      if note.text == "suspended" { try await context.sleep("wait", for: .seconds(100_000)) }
      log.add(note.text)
      guard note.text.hasPrefix("long") else { return }
      try await clock.sleep(for: .seconds(10_000))
      if note.text == "long, failing", context.retryCount == 0 { throw Refusal() }
    }
    return queue
  }

  private func options(
    onDuplicate policy: UniquePolicy = .keep,
    expiringIn seconds: Double = 3_600,
    requires conditions: Set<TaskCondition> = []
  ) -> TaskOptions {
    TaskOptions(
      expiryDate: clock.date + seconds,
      onDuplicate: policy,
      conditions: conditions
    )
  }

  @Test(arguments: StoreKind.allCases, Reason.allCases)
  func `a task that expired while it waited doesn't block a new task with its key`(
    kind: StoreKind,
    reason: Reason
  ) async throws {
    for policy in Self.policies {
      try await kind.withStore { store in
        let queue = await makeQueue(on: store)
        // For some reasons, the queue starts only after the task has expired.
        let runsLater = [.queueDoesNotRun, .taskIsSuspended].contains(reason)
        let early =
          runsLater
          ? try await addExpiredAndNewTask(to: queue, reason: reason, policy: policy)
          : nil
        try await withRunning(queue) {
          let (old, new): (EnqueuedTask, EnqueuedTask)
          if let early {
            (old, new) = early
          } else {
            (old, new) = try await addExpiredAndNewTask(to: queue, reason: reason, policy: policy)
          }
          #expect(new.isNew && new.id != old.id)
          if reason == .taskIsPaused { try await queue.resume(old.id) }
          await queue.setCondition("network", holds: true)
          await queue.resume()
          #expect(try await new.outcome() == .succeeded)
          #expect(
            try await old.outcome() == .abandoned(reason: "the task expired before it was done")
          )
        }
      }
    }
    #expect(log.entries == Self.policies.map { _ in "new" })
  }

  /// Adds a task that expires before it is performed, and then another task with the same key.
  private func addExpiredAndNewTask(
    to queue: TaskQueue,
    reason: Reason,
    policy: UniquePolicy
  ) async throws -> (EnqueuedTask, EnqueuedTask) {
    if reason == .queueIsPaused { await queue.pause() }
    let old = try await queue.enqueue(
      Note(reason == .taskIsSuspended ? "suspended" : "old"),
      delay: reason == .taskIsPaused ? .seconds(1) : nil,
      uniqueKey: "k",
      options: options(requires: reason == .conditionIsUnmet ? ["network"] : [])
    )
    if reason == .taskIsPaused { try await queue.pause(old.id) }
    if reason == .taskIsSuspended { try await queue.runAvailable() }
    try await clock.sleep(for: .seconds(7_200))
    let new = try await queue.enqueue(
      Note("new"),
      uniqueKey: "k",
      options: options(onDuplicate: policy)
    )
    return (old, new)
  }

  @Test(arguments: StoreKind.allCases)
  func `an expired successor doesn't block a new successor`(kind: StoreKind) async throws {
    for policy in [UniquePolicy.keep, .replace] {
      try await kind.withStore { store in
        let queue = await makeQueue(on: store)
        try await withRunning(queue) {
          try await queue.enqueue(Note("long"), uniqueKey: "k")
          try await clock.sleep(for: .seconds(1))
          let old = try await queue.enqueue(Note("old"), uniqueKey: "k", options: options())
          try await clock.sleep(for: .seconds(7_200))
          let new = try await queue.enqueue(
            Note("new"),
            uniqueKey: "k",
            options: options(onDuplicate: policy, expiringIn: 36_000)
          )
          #expect(new.isNew)
          #expect(
            try await old.outcome() == .abandoned(reason: "the task expired before it was done")
          )
          #expect(try await new.outcome() == .succeeded)
        }
      }
    }
    #expect(log.entries == ["long", "new", "long", "new"])
  }

  @Test(arguments: StoreKind.allCases)
  func `a task that is still running after its expiry date retains its key`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      try await withRunning(queue) {
        let long = try await queue.enqueue(Note("long"), uniqueKey: "k", options: options())
        try await clock.sleep(for: .seconds(7_200))
        let joined = try await queue.enqueue(
          Note("new"),
          uniqueKey: "k",
          options: options(onDuplicate: .join)
        )
        #expect(joined.id == long.id)
        let error = await #expect(throws: TaskQueueError.self) {
          try await queue.enqueue(
            Note("new"),
            uniqueKey: "k",
            options: options(onDuplicate: .reject)
          )
        }
        #expect(error?.code == .duplicate)
        let new = try await queue.enqueue(Note("new"), uniqueKey: "k", options: options())
        #expect(new.isNew)
        #expect(try await long.outcome() == .succeeded)
        #expect(try await new.outcome() == .succeeded)
      }
    }
    #expect(log.entries == ["long", "new"])
  }

  @Test(arguments: StoreKind.allCases)
  func `a successor that expires before the failed task's retry doesn't supersede the failed task`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      try await withRunning(queue) {
        let long = try await queue.enqueue(Note("long, failing"), uniqueKey: "k")
        try await clock.sleep(for: .seconds(1))
        let old = try await queue.enqueue(
          Note("old"),
          uniqueKey: "k",
          options: options(expiringIn: 10_100)
        )
        #expect(try await long.outcome() == .succeeded)
        #expect(
          try await old.outcome() == .abandoned(reason: "the task expired before it was done")
        )
      }
    }
    #expect(log.entries == ["long, failing", "long, failing"])
  }

  @Test(arguments: StoreKind.allCases)
  func `an expired task can't be updated or restarted while another task has its key`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      let old = try await queue.enqueue(Note("old"), uniqueKey: "k", options: options())
      try await clock.sleep(for: .seconds(7_200))
      let new = try await queue.enqueue(Note("new"), uniqueKey: "k", options: options())
      #expect(try await queue.update(old.id, expiryDate: clock.date + 3_600) == false)
      let error = await #expect(throws: TaskQueueError.self) { try await queue.retry(old.id) }
      #expect(error?.code == .duplicate)
      #expect(error?.message.contains("\(new.id)") == true)
      try await new.cancel()
      // Now no other task has the key.
      #expect(try await queue.retry(old.id))
      let second = try await queue.enqueue(Note("new"), uniqueKey: "k")
      #expect(second.id == old.id)
      #expect(try await queue.runAvailable() == 1)
      #expect(try await old.outcome() == .succeeded)
    }
    #expect(log.entries == ["old"])
  }

  @Test(arguments: StoreKind.allCases)
  func `only one of two tasks with a key is performed, even if a slow clock expires neither`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let ahead = TaskQueue(
        persistence: store,
        clock: SkewedClock(base: clock, seconds: 7_200)
      )
      let queue = await makeQueue(on: store)
      let old = try await queue.enqueue(Note("old"), uniqueKey: "k", options: options())
      let date = clock.date
      let new = try await ahead.enqueue(
        Note("new"),
        uniqueKey: "k",
        options: TaskOptions(availableDate: date)
      )
      #expect(new.isNew)
      try await queue.runAvailable()
      #expect(try await old.outcome() == .abandoned(reason: "the task expired before it was done"))
    }
    #expect(log.entries == ["new"])
  }
}
