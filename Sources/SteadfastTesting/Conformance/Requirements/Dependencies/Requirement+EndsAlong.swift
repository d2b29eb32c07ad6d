import SteadfastQueue
import SystemFoundation

/// Requirements about what happens to other tasks when the task that they wait for ends.
extension PersistenceConformance.Requirement {
  static let endsAlong: [Self] = [
    Self(
      "dependencies.noted",
      "When a task ends without success, the tasks that depend on it and its follower record "
        + "that.",
      check: checkRecordedFailures
    ),
    Self(
      "dependencies.progress",
      "The end of a task counts in its batch, and the outcome has the batch's progress if the "
        + "follower exists.",
      check: checkProgressOfBatch
    ),
    Self(
      "dependencies.cancelled",
      "When a task ends without success, the tasks that wait for its success are cancelled, then "
        + "the tasks that wait for those, and so on. All get the same date; the cause of each is "
        + "the failed dependency with the lowest ID.",
      check: checkCancellationCascades
    ),
    Self(
      "dependencies.not-retained",
      "If a task that ends without success is not retained, neither are the tasks that are "
        + "cancelled because of it.",
      check: checkCascadeWithoutRetention
    ),
    Self(
      "dependencies.member-gone",
      "A new task that reuses the ID of a removed member does not belong to that member's batch. "
        + "Its end and its restart do not affect the follower.",
      check: checkReusedIDOfRemovedMember
    ),
    Self(
      "dependencies.running",
      "Cancellation does not cascade to a task that runs or has ended, but the task records how "
        + "its dependency ended.",
      check: checkCascadeSkipsRunningTask
    ),
  ]

  private static func checkRecordedFailures(in store: StoreProbe) async throws {
    let record = TaskRecord.numbered(4).after(1, 2, 3, rule: .allEnded)
    let follower = TaskRecord.numbered(5).after(rule: .allEnded)
    try await store.insert(.numbered(5).after(rule: .allEnded))
    try await store.insert(.numbered(1).before(5), .numbered(2), .numbered(3))
    try await store.insert(record)
    let leases = try await store.claimExactly(1, 2, 3)
    let batch = BatchProgress(total: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[0], failure: .at(1), retains: false)
    try await store.apply(abandon, .cascading(batch: batch))
    try await store.expect(4, is: record.withFailures([1: .abandoned]))
    try await store.expect(5, is: follower.withFailures([1: .abandoned], batch: batch))
    try await store.apply(.succeed(leases[1], at: .second(2), retains: true), .cascading())
    let cancel = TaskChange.cancel(.claimed(leases[2]), at: .second(3), retains: true)
    try await store.apply(cancel, .cascading())
    let expected = record.withFailures([1: .abandoned, 3: .cancelled])
    try await store.expect(4, is: expected)
    let claim = try await store.claim()
    try store.expect(claim, [5, 4])
    try store.expect(claim.tasks[1].record, is: expected.with { $0.state = .running })
  }

  private static func checkProgressOfBatch(in store: StoreProbe) async throws {
    try await store.insert(.numbered(9).after(rule: .allEnded), .numbered(8), .numbered(1))
    try await store.insert(.numbered(2).before(9), .numbered(3).before(9), .numbered(4).before(9))
    try await store.insert(.numbered(5).before(8), .numbered(6).before(99))
    let leases = try await store.claimExactly(1, 2, 3, 4, 5, 6)
    func succeed(_ index: Int, retains: Bool = false) -> TaskChange {
      .succeed(leases[index], at: .second(1), retains: retains)
    }
    // No task waits for task 1.
    try await store.apply(succeed(0))
    try await store.apply(succeed(1), .cascading(batch: BatchProgress(total: 3, succeeded: 1)))
    var batch = BatchProgress(total: 3, succeeded: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[2], failure: .at(2), retains: true)
    try await store.apply(abandon, .cascading(batch: batch))
    let found = try await store.task(9).dependencies
    try store.expect(
      "the dependencies of task 9",
      found.summary,
      summaryOfFollower(failed: [3: .abandoned], batch: batch)
    )
    batch.succeeded += 1
    try await store.apply(succeed(3, retains: true), .cascading(batch: batch))
    let next = try await store.claim()
    try store.expect(next, [9])
    let shown = next.tasks[0].record.dependencies
    try store.expect(
      "the dependencies of task 9",
      shown.summary,
      summaryOfFollower(failed: [3: .abandoned], batch: batch)
    )
    // The follower of task 5 is removed; the follower of task 6 was never added.
    try await store.apply(.cancel(8, retains: false))
    try await store.apply(succeed(4), .cascading())
    try await store.apply(succeed(5, retains: true), .cascading())
  }

  /// Returns the expected `summary` of the dependencies of task 9, the follower.
  private static func summaryOfFollower(
    failed: [Int: TaskState],
    batch: BatchProgress
  ) -> String {
    let follower = TaskRecord.numbered(9).after(rule: .allEnded)
    return follower.withFailures(failed, batch: batch).dependencies.summary
  }

  private static func checkCancellationCascades(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, at: 50))
    try await store.insert(.numbered(4).after(1, 2), .numbered(3).after(1))
    try await store.insert(.numbered(5).after(4, 3), .numbered(7).after(2), .numbered(9))
    let last = TaskRecord.numbered(6).after(5, 3, rule: .allEnded)
    try await store.insert(last, .numbered(8).after(1).before(9))
    try await store.apply(.pause(.unclaimed(.numbered(4))))
    let lease = try await store.claimExactly(1)[0]
    let abandon = TaskChange.abandon(lease, failure: .at(7), retains: true)
    try await store.apply(abandon, .cascading(to: 3, 4, 5, 8, 9))
    let first: [Int: TaskState] = [1: .abandoned]
    func expectCancelled(_ number: Int, _ record: TaskRecord, because cause: Int) async throws {
      try await store.expect(number, is: record.cancelled(at: 7, because: cause))
    }
    try await expectCancelled(3, .numbered(3).after(1).withFailures(first), because: 1)
    try await expectCancelled(4, .numbered(4).after(1, 2).withFailures(first), because: 1)
    let both: [Int: TaskState] = [3: .cancelled, 4: .cancelled]
    try await expectCancelled(5, .numbered(5).after(4, 3).withFailures(both), because: 3)
    try await expectCancelled(8, .numbered(8).after(1).before(9).withFailures(first), because: 1)
    let batch = BatchProgress(total: 1, failed: 1)
    try await expectCancelled(
      9,
      .numbered(9).withFailures([8: .cancelled], batch: batch),
      because: 8
    )
    try await store.expect(6, is: last.withFailures([3: .cancelled, 5: .cancelled]))
    try await store.expect(7, is: .numbered(7).after(2))
    try await store.perform(6)
  }

  private static func checkCascadeWithoutRetention(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(9))
    try await store.insert(.numbered(3).after(2), .numbered(4).before(9), .numbered(5).before(9))
    try await store.apply(.cancel(1, retains: false), .cascading(to: 2, 3))
    try await store.expectTasks([4, 5, 9])
    try await store.apply(.cancel(4, retains: false), .cascading(to: 9))
    try await store.expectTasks([5])
    try await store.perform(5)
  }

  private static func checkReusedIDOfRemovedMember(in store: StoreProbe) async throws {
    let (first, second) = (TaskRecord.numbered(9), TaskRecord.numbered(8).after(rule: .allEnded))
    try await store.insert(first, second)
    try await store.insert(.numbered(1).before(9), .numbered(2).before(8), .numbered(3).before(8))
    let leases = try await store.claimExactly(1, 2, 3)
    let succeeded = BatchProgress(total: 1, succeeded: 1)
    let success = TaskChange.succeed(leases[0], at: .second(1), retains: false)
    try await store.apply(success, .cascading(batch: succeeded))
    let failed = BatchProgress(total: 2, failed: 1)
    let cancel = TaskChange.cancel(.claimed(leases[1]), at: .second(1), retains: false)
    try await store.apply(cancel, .cascading(batch: failed))
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(4).after(2))
    for change in [TaskChange.cancel(1), .restart(1), .cancel(1)] {
      try await store.apply(change, .cascading(to: 2, 4))
      try await store.expect(9, is: first.withFailures([:], batch: succeeded))
      try await store.expect(8, is: second.withFailures([2: .cancelled], batch: failed))
    }
  }

  private static func checkCascadeSkipsRunningTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(1))
    try await store.insert(.numbered(4).after(2))
    try await store.perform(1)
    let leases = try await store.claimExactly(2, 3)
    try await store.apply(.succeed(leases[1], at: .second(1), retains: true))
    try await store.apply(.restart(1), .cascading())
    try await store.apply(.cancel(1, at: 5), .cascading())
    let second = TaskRecord.numbered(2).after(1).withFailures([1: .cancelled])
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
