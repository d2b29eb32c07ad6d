import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests unique keys and successors through the public interface of a queue.
@Suite(.virtualTime) struct SuccessorTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence,
    _ perform: @escaping @Sendable (Note, TaskContext) async throws -> Void = { _, _ in }
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        backoff: .constant(.seconds(60))
      ),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      log.add("\(Int(clock.now.offset / .seconds(1))) \(note.text)")
      try await perform(note, context)
    }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `duplicates added during an attempt are performed as one task after the attempt`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] _, _ in
        try await clock.sleep(for: .seconds(10))
      }
      let policies: [UniquePolicy] = [.keep, .keep, .replace, .join]
      try await withRunning(queue) {
        let first = try await queue.enqueue(Note("1"), uniqueKey: "k")
        try await clock.sleep(for: .seconds(1))
        var tasks: [EnqueuedTask] = []
        for (number, policy) in policies.enumerated() {
          let note = Note("\(number + 2)")
          tasks.append(try await queue.enqueue(note, uniqueKey: "k", onDuplicate: policy))
        }
        #expect(tasks.map(\.isNew) == [true, false, false, false])
        #expect(Set(tasks.prefix(3).map(\.id)).count == 1)
        #expect(tasks[3].id == first.id)
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
        await #expect(throws: TaskQueueError.self) {
          try await queue.enqueue(Note("5"), uniqueKey: "k")
          try await queue.enqueue(Note("6"), uniqueKey: "k", onDuplicate: .reject)
        }
      }
      #expect(log.entries.prefix(2) == ["0 1", "10 4"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a failed task that has a successor is superseded, and gets the successor's outcome`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, context in
        try await clock.sleep(for: .seconds(10))
        if note.text == "old" { throw Refusal() }
        #expect(context.retryCount == 1)
        #expect(context.lastError == "refused")
      }
      let events = queue.events
      try await withRunning(queue) {
        let old = try await queue.enqueue(Note("old"), uniqueKey: "k")
        try await clock.sleep(for: .seconds(1))
        let new = try await queue.enqueue(Note("new"), uniqueKey: "k")
        async let outcome = old.outcome()
        async let value = old.value(as: Void.self)
        #expect(try await new.outcome() == .succeeded)
        #expect(try await outcome == .succeeded)
        try await value
        // A later caller gets the same outcome.
        #expect(try await old.outcome() == .succeeded)
        #expect(try await old.record() == nil)
        for await event in events {
          guard case .superseded(let record, let successor) = event else { continue }
          #expect(record.id == old.id && successor == new.id)
          break
        }
      }
      #expect(log.entries == ["0 old", "70 new"])
      #expect(try await queue.statistics.failed == 1)
    }
  }

  @Test
  func `a lookup of a successor doesn't wait for a cancellation that waits for the same results`()
    async throws
  {
    let queue = await makeQueue(on: LateAnswers(clock: clock)) { [clock] note, _ in
      try await clock.sleep(for: .seconds(note.text == "early" ? 9 : 10))
      throw Refusal()
    }
    try await withRunning(queue) {
      // From 9 to 14 s, the early task's result is being stored, and the other results accumulate.
      let early = try await queue.enqueue(Note("early"))
      let holder = try await queue.enqueue(Note("holder"), uniqueKey: "k")
      let other = try await queue.enqueue(Note("other"))
      try await clock.sleep(for: .seconds(1))
      let successor = try await queue.enqueue(Note("successor"), uniqueKey: "k")
      async let outcome = holder.outcome()
      // The other results are stored at 14 s, but the store returns at 19 s.
      try await clock.sleep(for: .seconds(14))
      let both = TaskFilter(ids: [other.id, successor.id])
      #expect(try await queue.cancel(matching: both) == 2)
      #expect(try await outcome == .cancelled)
      #expect(clock.now.offset == .seconds(19))
      try await early.cancel()
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `all tasks in a chain of successors have the outcome of the last task`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, _ in
        try await clock.sleep(for: .seconds(10))
        if note.text != "3" { throw Refusal() }
      }
      try await withRunning(queue) {
        var tasks: [EnqueuedTask] = []
        // The second task waits until 70 s, the date of the first task's retry.
        for (number, date) in [(1, 0.0), (2, 1), (3, 75)] {
          try await clock.sleep(for: .seconds(date) - clock.now.offset)
          tasks.append(try await queue.enqueue(Note("\(number)"), uniqueKey: "k"))
        }
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
      }
      #expect(queue.core.observers.outcomes.count == 0)
    }
  }

  @Test
  func `a wait for a superseded task's outcome ends even if the successor was already removed`()
    async throws
  {
    let base = InMemoryStore()
    let store = FaultInjectingStore(base)
    let queue = await makeQueue(on: store) { [clock] note, _ in
      try await clock.sleep(for: .seconds(10))
      if note.text == "old" { throw Refusal() }
    }
    try await withRunning(queue) {
      let old = try await queue.enqueue(Note("old"), uniqueKey: "k")
      try await clock.sleep(for: .seconds(1))
      let id = try await queue.enqueue(Note("new"), uniqueKey: "k").id
      // When the queue learns of the supersession, the successor has already been removed.
      store.inject(.hang, .afterEffect) { $0.changes.contains("retry") }
      try await clock.sleep(for: .seconds(10))
      let other = TaskChange.cancel(.unclaimed(id), at: clock.date, retains: false)
      #expect(try await base.apply([other], durability: .durable) == [.done])
      async let outcome = old.outcome()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      do {
        _ = try await outcome
        Issue.record("a removed task has an outcome")
      } catch let error as TaskQueueError {
        #expect(error.code == .unknownTask)
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a pass also performs an available successor`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      // Both tasks with the key wait, as they do after a crash.
      let first = try await queue.enqueue(Note("first"), uniqueKey: "k")
      let claim = try await store.claim(
        ClaimRequest(limit: 1, names: [Note.taskName: 1], now: clock.date)
      )
      let second = try await queue.enqueue(Note("second"), uniqueKey: "k")
      #expect(second.id != first.id)
      _ = try await store.apply([.release(claim.tasks[0].lease)], durability: .relaxed)
      #expect(try await queue.runAvailable() == 2)
      #expect(log.entries == ["0 first", "0 second"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue is idle only after the successor has ended`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] _, _ in
        try await clock.sleep(for: .seconds(1))
      }
      try await withRunning(queue) {
        try await queue.enqueue(Note("1"), uniqueKey: "k")
        try await clock.sleep(for: .milliseconds(500))
        try await queue.enqueue(Note("2"), uniqueKey: "k")
        try await queue.waitUntilIdle()
        #expect(log.entries == ["0 1", "1 2"])
        #expect(try await queue.count == 0)
      }
    }
  }

  @Test func `repeated replacements delay a single task up to its maximum delay`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    try await withRunning(queue) {
      for number in 1...40 {
        try await queue.enqueue(
          Note("\(number)"),
          delay: .seconds(3),
          uniqueKey: "draft",
          onDuplicate: .replace,
          options: TaskOptions(maxDelay: .seconds(30))
        )
        try await clock.sleep(for: .seconds(1))
      }
      try await clock.sleep(for: .seconds(100))
    }
    #expect(log.entries == ["30 30", "42 40"])
  }

  @Test
  func `during the uniqueFor period of an ended task, new tasks with its key are duplicates`()
    async throws
  {
    let queue = await makeQueue(on: InMemoryStore())
    let options = TaskOptions(uniqueFor: .seconds(60))
    try await withRunning(queue) {
      let first = try await queue.enqueue(Note("1"), uniqueKey: "k", options: options)
      #expect(try await first.outcome() == .succeeded)
      let second = try await queue.enqueue(Note("2"), uniqueKey: "k", options: options)
      #expect(second.id == first.id && !second.isNew)
      #expect(try await second.outcome() == .succeeded)
      let other = try await queue.enqueue(Note("3"), uniqueKey: "k", onDuplicate: .replace)
      #expect(other.isNew)
      try await clock.sleep(for: .seconds(61))
      let third = try await queue.enqueue(Note("4"), uniqueKey: "k", options: options)
      #expect(third.isNew)
    }
    #expect(log.entries == ["0 1", "0 3", "61 4"])
  }

  @Test
  func `a dead letter doesn't block a new task with its key, but then can't be restarted`()
    async throws
  {
    let queue = await makeQueue(on: InMemoryStore()) { note, _ in
      if note.text == "bad" { throw TaskAbandoned("bad") }
    }
    let bad = try await queue.enqueue(Note("bad"), uniqueKey: "k")
    try await queue.runAvailable()
    let good = try await queue.enqueue(Note("good"), delay: .seconds(5), uniqueKey: "k")
    #expect(good.isNew)
    let error = await #expect(throws: TaskQueueError.self) { try await queue.retry(bad.id) }
    #expect(error?.code == .duplicate)
    #expect(error?.message.contains("\(good.id)") == true)
    #expect(try await queue.retry(matching: .deadLetters) == 0)
    try await good.cancel()
    #expect(try await queue.retry(matching: .deadLetters) == 1)
  }

  @Test func `invalid combinations of options are rejected`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    for options in [
      TaskOptions(uniqueFor: .seconds(-1)), TaskOptions(maxDelay: .seconds(-1)),
      TaskOptions(delay: .seconds(2), maxDelay: .seconds(1)),
    ] {
      let error = await #expect(throws: TaskQueueError.self) {
        try await queue.enqueue(Note("a"), uniqueKey: "k", options: options)
      }
      #expect(error?.code == .invalidArgument)
    }
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(
        contentsOf: [Note("a"), Note("a")],
        options: TaskOptions(onDuplicate: .reject),
        uniqueKey: \.text
      )
    }
    #expect(error?.code == .duplicate)
    #expect(try await queue.count == 0)
  }
}

/// A store that stores retries at once, but returns five seconds later.
private struct LateAnswers: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  let clock: VirtualClock

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch, durability: durability)
    let isEnd = batch.contains { $0.move?.kind == .retry }
    // A cancelled caller stops waiting.
    if isEnd { try? await clock.sleep(for: .seconds(5)) }
    return outcomes
  }
}
