import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that the queues of a group share a store without affecting each other.
extension TaskQueueGroupTests {
  @Test(arguments: StoreKind.allCases)
  func `a queue finds, cancels and counts only its own tasks`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      for number in 1...3 {
        try await a.enqueue(Note("\(number)"))
        try await b.enqueue(Note("\(number)"))
      }
      #expect(try await a.cancelAll() == 3)
      #expect(try await a.count(matching: .unfinished) == 0)
      #expect(try await b.count(matching: .unfinished) == 3)
      #expect(try await a.tasks(matching: TaskFilter(queue: nil)).count == 3)
      #expect(try await group.runAvailable() == 3)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a caller is notified when another queue cancels or restarts its task`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let kept = TaskQueueConfiguration(cancelledRetention: .forever)
      let group = makeGroup(on: store, configuration: kept)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      let task = try await b.enqueue(Note("1"), delay: .seconds(1_000))
      async let first = task.outcome()
      #expect(try await a.cancel(matching: TaskFilter(queue: nil)) == 1)
      #expect(try await first == .cancelled)
      #expect(try await a.retry(matching: TaskFilter(queue: nil)) == 1)
      try await withRunning(group) {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
  }

  @Test func `a task stays ended if it ends while another queue is still looking up its restart`()
    async throws
  {
    let store = FaultInjectingStore()
    let group = makeGroup(
      on: store,
      configuration: TaskQueueConfiguration(cancelledRetention: .forever)
    )
    let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
    let task = try await b.enqueue(Note("1"), delay: .seconds(1_000))
    #expect(try await a.cancel(matching: TaskFilter(queue: nil)) == 1)
    #expect(try await task.outcome() == .cancelled)
    let restarts = Log<Int>()
    try await withRunning(group) {
      store.inject(.delay(.seconds(60), on: clock), .afterEffect, times: nil) { call in
        if call.changes.contains("restart") { restarts.add(call.number) }
        return call.kind == .tasks && restarts.count > 0
      }
      let count = try await a.retry(matching: TaskFilter(queue: nil))
      #expect(count == 1)
      // Wait until every lookup has ended.
      try await clock.sleep(for: .seconds(1_000))
    }
    #expect(log.entries == ["b begins 1", "b 1"])
    #expect(try await task.outcome() == .succeeded)
  }

  @Test(arguments: [StoreKind.memory, .file], [true, false])
  func `a caller is notified when another queue removes its tasks, ended or not`(
    kind: StoreKind,
    isEndedFirst: Bool
  ) async throws {
    try await kind.withStore { store in
      let group = makeGroup(
        on: store,
        configuration: TaskQueueConfiguration(succeededRetention: .forever)
      )
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      var tasks: [EnqueuedTask] = []
      for ends in [isEndedFirst, !isEndedFirst] {
        tasks.append(try await b.enqueue(Note("1"), delay: ends ? .zero : .seconds(1_000)))
        if ends { _ = try await group.runAvailable() }
      }
      let (ended, waiting) = isEndedFirst ? (tasks[0], tasks[1]) : (tasks[1], tasks[0])
      async let outcome = waiting.outcome()
      #expect(try await a.remove(matching: TaskFilter(queue: nil)) == 2)
      #expect(try await outcome == .cancelled)
      #expect(try await ended.outcome() == .succeeded)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `unique keys and order keys are local to a queue`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      let first = try await a.enqueue(Note("1"), uniqueKey: "k")
      let second = try await b.enqueue(Note("1"), uniqueKey: "k")
      #expect(first.isNew && second.isNew)
      #expect(try await !a.enqueue(Note("2"), uniqueKey: "k").isNew)
      for queue in [a, b] {
        try await queue.enqueue(Note("o"), options: TaskOptions(orderKey: "o"))
      }
      let begin = clock.now
      try await withRunning(group) { try await group.waitUntilIdle() }
      #expect(begin.duration(to: clock.now) == .seconds(20))
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `each queue prunes only its own retained tasks`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let few = TaskQueueConfiguration(succeededRetention: Retention(maxCount: 1))
      let all = TaskQueueConfiguration(succeededRetention: .forever)
      let a = try await group.addQueue("a", configuration: few)
      let b = try await group.addQueue("b", configuration: all)
      for queue in [a, b] {
        for number in 1...3 { try await queue.enqueue(Note("\(number)")) }
      }
      try await group.runAvailable()
      // The queues prune when a run starts.
      try await group.runAvailable()
      #expect(try await a.count(matching: TaskFilter(states: [.succeeded])) == 1)
      #expect(try await b.count(matching: TaskFilter(states: [.succeeded])) == 3)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task that depends on another queue's task starts as soon as the dependency has succeeded`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      let first = try await a.enqueue(Note("1"))
      let second = try await b.enqueue(Note("2"), options: TaskOptions(dependencies: [first.id]))
      let begin = clock.now
      try await withRunning(group) {
        let outcome = try await second.outcome()
        #expect(outcome == .succeeded)
      }
      #expect(begin.duration(to: clock.now) == .seconds(20))
      #expect(log.entries == ["a begins 1", "a 1", "b begins 2", "b 2"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a failure cascades to a dependent in another queue, and its caller is notified`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      let first = try await a.enqueue(Note("fails"))
      let second = try await b.enqueue(Note("2"), options: TaskOptions(dependencies: [first.id]))
      try await withRunning(group) {
        let outcome = try await second.outcome()
        #expect(outcome == .cancelled)
        let cause = try await first.outcome()
        #expect(cause == .abandoned(reason: "refused"))
      }
      #expect(log.entries == ["a begins fails"])
    }
  }

  @Test func `each queue has its own values, even if names contain separators`() async throws {
    let base = InMemoryStore()
    try await base.open()
    let queues = ["default", "q", "q q", "a/b", "a", "Mail q", "/Mail"]
    let names = [
      "steadfast.limit", "steadfast.limit/Mail", "steadfast.limit/Mail q", "steadfast.limit/q/Mail",
      "steadfast.limit/b", "steadfast.limit.0.7/Mail", "steadfast.limit.0.7/Mail q",
      "steadfast.limit/b\u{1f}/Mail",
    ]
    for queue in queues {
      let store = NamedStore.of(queue: queue, in: base)
      for name in names {
        let bytes = Array("\(queue), \(name)".utf8)
        let change = TaskChange.setValue(named: name, from: nil, to: bytes)
        #expect(try await store.apply([change], durability: .durable) == [.done], "\(bytes)")
        #expect(try await store.value(named: name) == bytes)
      }
    }
    // The default queue's store also has the values of other queues: their names have another form.
    for queue in queues.dropFirst() {
      let store = NamedStore.of(queue: queue, in: base)
      for prefix in ["steadfast.limit", "steadfast.limit/", "steadfast.limit/Mail"] {
        let found = try await store.values(prefix: prefix)
        let expected = names.filter { $0.hasPrefix(prefix) }
          .sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
        #expect(found.map(\.name) == expected, "\(queue): \(prefix)")
        #expect(found.allSatisfy { $0.bytes == Array("\(queue), \($0.name)".utf8) })
      }
    }
  }

  /// Existing files contain these names, so they must not change.
  @Test func `the names of the library's own values are the same in all versions`() async throws {
    let base = InMemoryStore()
    try await base.open()
    let store = NamedStore.of(queue: "q", in: base)
    for name in [StoredPause.valueName, RunTimes.valueName, ScheduleKey("s").valueName] {
      let change = TaskChange.setValue(named: name, from: nil, to: [1])
      _ = try await store.apply([change], durability: .durable)
      #expect(try await base.value(named: "\(name) q") == [1])
    }
  }
}
