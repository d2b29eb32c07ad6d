import SteadfastQueue
import SystemFoundation

/// Requirements about the removal of a task for which others wait, or because of which others
/// were cancelled.
extension PersistenceConformance.Requirement {
  static let removalsAlong: [Self] = [
    Self(
      "dependencies.removed",
      "The removal of a task cascades to the tasks that were cancelled because of it. The outcome "
        + "lists them, and has no progress.",
      check: removalCascades
    ),
    Self(
      "dependencies.pruned",
      "A task that was cancelled because of another one is pruned only together with that one.",
      check: pruningCascades
    ),
    Self(
      "dependencies.superseded",
      "A task for which others wait is retried even if it has a successor, which keeps waiting.",
      check: notSuperseded
    ),
  ]

  private static func removalCascades(_ store: StoreProbe) async throws {
    let fourth = TaskRecord.numbered(4).after(1, rule: .allEnded)
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), fourth)
    try await store.apply(.cancel(1), .along(2, 3))
    try await store.apply(.remove(.numbered(1)), .along(2, 3))
    try await store.expectTasks([4])
    try await store.expect(4, is: fourth.noting([1: .cancelled]))
    let follower = TaskRecord.numbered(9).after(rule: .allEnded)
    try await store.insert(follower, .numbered(5).before(9), .numbered(6).after(5).before(9))
    let batch = BatchProgress(total: 2, failed: 2)
    try await store.apply(.cancel(5), .along(6, batch: batch))
    // Removing the task that was cancelled by the cascade does not remove its cause.
    try await store.apply(.remove(.numbered(6)), .along())
    try await store.expectTasks([4, 5, 9])
    try await store.apply(.remove(.numbered(5)), .along())
    let noted: [Int: TaskState] = [5: .cancelled, 6: .cancelled]
    try await store.expect(9, is: follower.noting(noted, batch: batch))
    try await store.perform(4, 9)
  }

  private static func pruningCascades(_ store: StoreProbe) async throws {
    func prune(_ state: TaskState, keeping count: Int?, before date: Double? = nil) -> TaskChange {
      .prune(
        state,
        endedBefore: date.map(Date.second),
        keepingLatest: count,
        now: .second(100)
      )
    }
    try await store.insert(.numbered(5), .numbered(6).after(5))
    let lease = try await store.claimed(5)[0]
    try await store.apply(.abandon(lease, failure: .at(1), retains: true), .along(6))
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), .numbered(4))
    try await store.apply(.cancel(1, at: 2), .along(2, 3))
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

  private static func notSuperseded(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2).after(1))
    try await store.insert(.numbered(3, key: "other").before(9))
    let leases = try await store.claimed(1, 3)
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
