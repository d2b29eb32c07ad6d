import SteadfastQueue
import SystemFoundation

/// Requirements about what happens to other tasks when the task that they wait for is removed.
extension PersistenceConformance.Requirement {
  static let removalsAlong: [Self] = [
    Self(
      "dependencies.removed",
      "When a task is removed, the tasks that were cancelled because of it are removed too. The "
        + "outcome lists those tasks, and has no batch progress.",
      check: checkRemovalCascades
    ),
    Self(
      "dependencies.pruned",
      "A task that was cancelled because of another task is pruned only together with that task.",
      check: checkPruningCascades
    ),
    Self(
      "dependencies.superseded",
      "If other tasks wait for a task, it is retried even if it has a successor. The successor "
        + "keeps waiting.",
      check: checkAwaitedTaskIsNotSuperseded
    ),
  ]

  private static func checkRemovalCascades(in store: StoreProbe) async throws {
    let fourth = TaskRecord.numbered(4).after(1, rule: .allEnded)
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), fourth)
    try await store.apply(.cancel(1), .cascading(to: 2, 3))
    try await store.apply(.remove(.numbered(1)), .cascading(to: 2, 3))
    try await store.expectTasks([4])
    try await store.expect(4, is: fourth.withFailures([1: .cancelled]))
    let follower = TaskRecord.numbered(9).after(rule: .allEnded)
    try await store.insert(follower, .numbered(5).before(9), .numbered(6).after(5).before(9))
    let batch = BatchProgress(total: 2, failed: 2)
    try await store.apply(.cancel(5), .cascading(to: 6, batch: batch))
    // Removing task 6 does not remove task 5, because of which it was cancelled.
    try await store.apply(.remove(.numbered(6)), .cascading())
    try await store.expectTasks([4, 5, 9])
    try await store.apply(.remove(.numbered(5)), .cascading())
    let noted: [Int: TaskState] = [5: .cancelled, 6: .cancelled]
    try await store.expect(9, is: follower.withFailures(noted, batch: batch))
    try await store.perform(4, 9)
  }

  private static func checkPruningCascades(in store: StoreProbe) async throws {
    func prune(_ state: TaskState, keeping count: Int?, before date: Double? = nil) -> TaskChange {
      .prune(
        state,
        endedBefore: date.map(Date.second),
        keepingLatest: count,
        now: .second(100)
      )
    }
    try await store.insert(.numbered(5), .numbered(6).after(5))
    let lease = try await store.claimExactly(5)[0]
    try await store.apply(.abandon(lease, failure: .at(1), retains: true), .cascading(to: 6))
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), .numbered(4))
    try await store.apply(.cancel(1, at: 2), .cascading(to: 2, 3))
    try await store.apply(.cancel(4, at: 3))
    try await store.apply(prune(.cancelled, keeping: 2))
    try await store.expectTasks([1, 2, 3, 4, 5, 6])
    try await store.apply(prune(.cancelled, keeping: 1))
    try await store.expectTasks([4, 5, 6])
    try await store.apply(prune(.cancelled, keeping: nil, before: 100))
    try await store.expectTasks([5, 6])
    try await store.apply(prune(.abandoned, keeping: 0))
    try await store.expectTasks([])
  }

  private static func checkAwaitedTaskIsNotSuperseded(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2).after(1))
    try await store.insert(.numbered(3, key: "other").before(9))
    let leases = try await store.claimExactly(1, 3)
    try await store.insert(.numbered(4, key: "k"), .numbered(5, key: "other"))
    for (lease, date) in zip(leases, [50.0, 60.0]) {
      try await store.apply(
        .retry(lease, availableDate: .second(date), retryCount: 1, failure: .at(1))
      )
    }
    try await store.expectTasks([1, 2, 3, 4, 5])
    for (number, key) in [(4, "k"), (5, "other")] {
      let successor = TaskRecord.numbered(number, key: key).with { $0.keyRole = .successor }
      try await store.expect(number, is: successor)
    }
    try await store.perform(1, at: 50)
    try await store.perform(2, 4, at: 50)
    try await store.perform(3, at: 60)
    try await store.perform(5, at: 60)
  }
}
