import SteadfastQueue
import SystemFoundation

/// Requirements about the tasks of several queues in one store.
extension PersistenceConformance.Requirement {
  static let queues: [Self] = [
    Self(
      "queue.claim",
      "A claim returns only tasks of its queue, even if other queues have tasks that rank higher.",
      check: checkClaimsOfOneQueue
    ),
    Self(
      "queue.look-up",
      "A look-up finds the tasks of one queue, or of all queues.",
      check: checkLookUpsByQueue
    ),
    Self(
      "queue.keys",
      "A unique key and an order key belong to one queue.",
      check: checkKeysOfSeveralQueues
    ),
    Self(
      "queue.changes",
      "Unparking and pruning affect only the tasks of one queue.",
      check: checkUnparkingAndPruningInOneQueue
    ),
    Self(
      "queue.names",
      "Two queues are the same only if their names are equal byte by byte.",
      check: checkQueueNames
    ),
    Self(
      "reopen.queues",
      "A task is still in its queue after the store is reopened.",
      .reopened,
      check: checkQueuesAfterReopening
    ),
  ]

  private static func checkClaimsOfOneQueue(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1, priority: 9).inQueue("q"),
      .numbered(2).inQueue("r"),
      .numbered(3),
      .numbered(4).inQueue("q"),
      .numbered(5, at: 60).inQueue("q")
    )
    try store.expect(try await store.claim(1), [3])
    try store.expect(try await store.claim(of: "s"), [])
    try store.expect(try await store.claim(1, of: "q"), [1])
    try store.expect(try await store.claim(of: "q"), [4])
    try store.expect(try await store.claim(of: "r", otherNames: 9), [2])
    try store.expect(try await store.claim(at: 60), [])
    try store.expect(try await store.claim(of: "q", at: 60), [5])
  }

  private static func checkLookUpsByQueue(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1).inQueue("q"),
      .numbered(2),
      .numbered(3, key: "k").inQueue("q"),
      .numbered(4, key: "k")
    )
    try await store.expectTasks([2, 4])
    try await store.expectTasks([1, 3], TaskFilter(queue: "q"))
    try await store.expectTasks([1, 2, 3, 4], TaskFilter(queue: nil))
    try await store.expectTasks([3], TaskFilter(queue: "q", uniqueKeys: ["k"]))
    try await store.expectTasks([], TaskFilter(queue: "r"))
    for queue in ["", "q"] {
      let filter = TaskFilter(queue: queue, states: [.waiting])
      try store.expect("the number", try await store.count(filter), 2)
    }
    let others = TaskFilter(queue: "r", states: [.waiting])
    try store.expect("the number", try await store.count(others), 0)
    try store.expect("whether there is one", try await store.contains(others), false)
    try await store.expect(3, is: TaskRecord.numbered(3, key: "k").inQueue("q"))
  }

  private static func checkKeysOfSeveralQueues(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1, key: "k", order: "o"),
      .numbered(2, key: "k", order: "o").inQueue("q"),
      .numbered(3, order: "o").inQueue("q"),
      onDuplicate: .reject
    )
    try await store.apply(
      .insert(TaskRecord.numbered(4, key: "k").inQueue("q"), onDuplicate: .keep),
      .duplicate(of: .numbered(2))
    )
    try store.expect(try await store.claim(of: "q"), [2])
    try store.expect(try await store.claim(), [1])
    try await store.apply(
      .insert(TaskRecord.numbered(5, key: "k").inQueue("q"), onDuplicate: .keep)
    )
    let successor = TaskRecord.numbered(5, key: "k").inQueue("q").with(role: .successor)
    try await store.expect(5, is: successor)
  }

  private static func checkUnparkingAndPruningInOneQueue(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).inQueue("q"))
    for queue in ["", "q"] {
      let claim = try await store.claim(of: queue)
      let lease = try claim.tasks.first.required().lease
      try await store.apply(.park(lease, failure: .at(1)))
    }
    try await store.apply(.unpark(name: "A", queue: "q"))
    try store.expect(try await store.claim(), [])
    let lease = try await store.claim(of: "q").tasks.first.required().lease
    try await store.apply(.unpark(name: "A"))
    let other = try await store.claimOne()
    try await store.apply(.succeed(lease, at: .second(1), retains: true))
    try await store.apply(.succeed(other, at: .second(2), retains: true))
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(9), keepingLatest: 0, now: .second(9), queue: "r")
    )
    try await store.expectTasks([1, 2], TaskFilter(queue: nil))
    try await store.apply(
      .prune(.succeeded, endedBefore: nil, keepingLatest: 1, now: .second(9), queue: "q")
    )
    try await store.expectTasks([1, 2], TaskFilter(queue: nil))
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(9), keepingLatest: nil, now: .second(9), queue: "q")
    )
    try await store.expectTasks([1], TaskFilter(queue: nil))
  }

  private static func checkQueueNames(in store: StoreProbe) async throws {
    let names = ["\u{e9}", "e\u{301}", "E\u{301}", " ", "q", "Q", "q ", "it's \"%_\\"]
    for (index, name) in names.enumerated() {
      try await store.insert(TaskRecord.numbered(index + 1).inQueue(name))
    }
    for (index, name) in names.enumerated() {
      try await store.expectTasks([index + 1], TaskFilter(queue: name))
      try store.expect(try await store.claim(of: name), [index + 1])
    }
  }

  private static func checkQueuesAfterReopening(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1).inQueue("q"),
      .numbered(2, key: "k").inQueue("r"),
      .numbered(3)
    )
    let again = try await store.reopen()
    try await again.expect(1, is: TaskRecord.numbered(1).inQueue("q"))
    try await again.expectTasks([2], TaskFilter(queue: "r"))
    try again.expect(try await again.claim(of: "q"), [1])
    try again.expect(try await again.claim(), [3])
  }
}

extension TaskRecord {
  /// Returns a copy of the task in a queue.
  fileprivate func inQueue(_ queue: String) -> TaskRecord { replacing(queue: queue) }

  fileprivate func with(role: UniqueKeyRole) -> TaskRecord { with { $0.keyRole = role } }
}
