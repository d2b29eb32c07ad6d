import SteadfastQueue
import SystemFoundation

/// Requirements about the end of a task for which others wait.
extension PersistenceConformance.Requirement {
  static let endsAlong: [Self] = [
    Self(
      "dependencies.noted",
      "When a task ends without success, the tasks that depend on it and its follower record "
        + "that.",
      check: recordedFailures
    ),
    Self(
      "dependencies.progress",
      "The end of a task counts in its batch, and the outcome has the batch's progress if the "
        + "follower exists.",
      check: progress
    ),
    Self(
      "dependencies.cancelled",
      "When a task ends without success, cancellation cascades to the tasks that wait for its "
        + "success, and further to those that wait for them. All get the same date; the cause of "
        + "each is the failed dependency with the lowest ID.",
      check: cancellationCascades
    ),
    Self(
      "dependencies.not-retained",
      "If a task that ends without success is not retained, neither are the tasks that are "
        + "cancelled because of it.",
      check: notRetained
    ),
    Self(
      "dependencies.member-gone",
      "A new task that reuses the ID of a removed member does not belong to that member's batch. "
        + "Its end and its restart do not affect the follower.",
      check: removedMember
    ),
    Self(
      "dependencies.running",
      "Cancellation does not cascade to a task that runs or has ended, but the task records how "
        + "its dependency ended.",
      check: running
    ),
  ]

  private static func recordedFailures(_ store: StoreProbe) async throws {
    let record = TaskRecord.numbered(4).after(1, 2, 3, rule: .allEnded)
    let follower = TaskRecord.numbered(5).after(rule: .allEnded)
    try await store.insert(.numbered(5).after(rule: .allEnded))
    try await store.insert(.numbered(1).before(5), .numbered(2), .numbered(3))
    try await store.insert(record)
    let leases = try await store.claimed(1, 2, 3)
    let batch = BatchProgress(total: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[0], failure: .at(1), retains: false)
    try await store.apply(abandon, .along(batch: batch))
    try await store.expect(4, is: record.noting([1: .abandoned]))
    try await store.expect(5, is: follower.noting([1: .abandoned], batch: batch))
    try await store.apply(.succeed(leases[1], at: .second(2), retains: true), .along())
    let cancel = TaskChange.cancel(.claimed(leases[2]), at: .second(3), retains: true)
    try await store.apply(cancel, .along())
    let expected = record.noting([1: .abandoned, 3: .cancelled])
    try await store.expect(4, is: expected)
    let claim = try await store.claim()
    try store.expect(claim, [5, 4])
    try store.expect(claim.tasks[1].record, is: expected.with { $0.state = .running })
  }

  private static func progress(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(9).after(rule: .allEnded), .numbered(8), .numbered(1))
    try await store.insert(.numbered(2).before(9), .numbered(3).before(9), .numbered(4).before(9))
    try await store.insert(.numbered(5).before(8), .numbered(6).before(99))
    let leases = try await store.claimed(1, 2, 3, 4, 5, 6)
    func succeed(_ place: Int, retains: Bool = false) -> TaskChange {
      .succeed(leases[place], at: .second(1), retains: retains)
    }
    // No task waits for task 1.
    try await store.apply(succeed(0))
    try await store.apply(succeed(1), .along(batch: BatchProgress(total: 3, succeeded: 1)))
    var batch = BatchProgress(total: 3, succeeded: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[2], failure: .at(2), retains: true)
    try await store.apply(abandon, .along(batch: batch))
    let found = try await store.task(9).dependencies
    try store.expect("the dependencies of task 9", found.summary, following([3: .abandoned], batch))
    batch.succeeded += 1
    try await store.apply(succeed(3, retains: true), .along(batch: batch))
    let next = try await store.claim()
    try store.expect(next, [9])
    let shown = next.tasks[0].record.dependencies
    try store.expect("the dependencies of task 9", shown.summary, following([3: .abandoned], batch))
    // The follower of task 5 is removed; the follower of task 6 was never added.
    try await store.apply(.cancel(8, retains: false))
    try await store.apply(succeed(4), .along())
    try await store.apply(succeed(5, retains: true), .along())
  }

  /// Describes the expected dependencies of a follower.
  private static func following(_ failed: [Int: TaskState], _ batch: BatchProgress) -> String {
    TaskRecord.numbered(9).after(rule: .allEnded).noting(failed, batch: batch).dependencies.summary
  }

  private static func cancellationCascades(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, at: 50))
    try await store.insert(.numbered(4).after(1, 2), .numbered(3).after(1))
    try await store.insert(.numbered(5).after(4, 3), .numbered(7).after(2), .numbered(9))
    let last = TaskRecord.numbered(6).after(5, 3, rule: .allEnded)
    try await store.insert(last, .numbered(8).after(1).before(9))
    try await store.apply(.pause(.unclaimed(.numbered(4))))
    let lease = try await store.claimed(1)[0]
    let abandon = TaskChange.abandon(lease, failure: .at(7), retains: true)
    try await store.apply(abandon, .along(3, 4, 5, 8, 9))
    let first: [Int: TaskState] = [1: .abandoned]
    func expect(_ number: Int, _ record: TaskRecord, because cause: Int) async throws {
      try await store.expect(number, is: record.cancelled(at: 7, because: cause))
    }
    try await expect(3, .numbered(3).after(1).noting(first), because: 1)
    try await expect(4, .numbered(4).after(1, 2).noting(first), because: 1)
    let both: [Int: TaskState] = [3: .cancelled, 4: .cancelled]
    try await expect(5, .numbered(5).after(4, 3).noting(both), because: 3)
    try await expect(8, .numbered(8).after(1).before(9).noting(first), because: 1)
    let batch = BatchProgress(total: 1, failed: 1)
    try await expect(9, .numbered(9).noting([8: .cancelled], batch: batch), because: 8)
    try await store.expect(6, is: last.noting([3: .cancelled, 5: .cancelled]))
    try await store.expect(7, is: .numbered(7).after(2))
    try await store.perform(6)
  }

  private static func notRetained(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(9))
    try await store.insert(.numbered(3).after(2), .numbered(4).before(9), .numbered(5).before(9))
    try await store.apply(.cancel(1, retains: false), .along(2, 3))
    try await store.expectTasks([4, 5, 9])
    try await store.apply(.cancel(4, retains: false), .along(9))
    try await store.expectTasks([5])
    try await store.perform(5)
  }

  private static func removedMember(_ store: StoreProbe) async throws {
    let (first, second) = (TaskRecord.numbered(9), TaskRecord.numbered(8).after(rule: .allEnded))
    try await store.insert(first, second)
    try await store.insert(.numbered(1).before(9), .numbered(2).before(8), .numbered(3).before(8))
    let leases = try await store.claimed(1, 2, 3)
    let succeeded = BatchProgress(total: 1, succeeded: 1)
    let success = TaskChange.succeed(leases[0], at: .second(1), retains: false)
    try await store.apply(success, .along(batch: succeeded))
    let failed = BatchProgress(total: 2, failed: 1)
    let cancel = TaskChange.cancel(.claimed(leases[1]), at: .second(1), retains: false)
    try await store.apply(cancel, .along(batch: failed))
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(4).after(2))
    for change in [TaskChange.cancel(1), .restart(1), .cancel(1)] {
      try await store.apply(change, .along(2, 4))
      try await store.expect(9, is: first.noting([:], batch: succeeded))
      try await store.expect(8, is: second.noting([2: .cancelled], batch: failed))
    }
  }

  private static func running(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(1))
    try await store.insert(.numbered(4).after(2))
    try await store.perform(1)
    let leases = try await store.claimed(2, 3)
    try await store.apply(.succeed(leases[1], at: .second(1), retains: true))
    try await store.apply(.restart(1), .along())
    try await store.apply(.cancel(1, at: 5), .along())
    let second = TaskRecord.numbered(2).after(1).noting([1: .cancelled])
    try await store.expect(2, is: second.with { $0.state = .running })
    let third = try await store.task(3)
    try store.expect("the state of task 3", third.state, .succeeded)
    try store.expect(
      "the dependencies of task 3",
      third.dependencies.summary,
      second.dependencies.summary
    )
    try await store.apply(.release(leases[0]))
    try await store.perform(2)
    try await store.perform(4)
  }
}
