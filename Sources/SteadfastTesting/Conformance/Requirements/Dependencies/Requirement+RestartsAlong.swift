import SteadfastQueue
import SystemFoundation

/// Requirements about what happens to other tasks when the task that they wait for is restarted.
extension PersistenceConformance.Requirement {
  static let restartsAlong: [Self] = [
    Self(
      "dependencies.restarted",
      "A restart cascades to the tasks that were cancelled because of the restarted task, with the "
        + "same date, in the order of their IDs. All these tasks wait again, and count as "
        + "unfinished.",
      check: checkRestartCascades
    ),
    Self(
      "dependencies.left",
      "A task stays cancelled if another of its dependencies has ended without success. If that "
        + "dependency still exists, it becomes the cause.",
      check: checkOtherFailedDependency
    ),
    Self(
      "dependencies.unnoted",
      "A follower stays cancelled if its batch has more failures than it has recorded.",
      check: checkUnrecordedFailure
    ),
    Self(
      "dependencies.key-taken",
      "A task stays cancelled if another task holds its unique key. Of two cancelled tasks with "
        + "the same key, the one with the lower ID is restarted.",
      check: checkRestartWithTakenKey
    ),
  ]

  private static func checkRestartCascades(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(4).after(1), .numbered(3).after(1))
    let last = TaskRecord.numbered(5, key: "k").after(3, 4)
    try await store.insert(last, .numbered(9), .numbered(2, at: 8))
    try await store.insert(.numbered(6).after(5).before(9), .numbered(7).before(9))
    let ended = BatchProgress(total: 2, failed: 1)
    try await store.apply(.cancel(1), .cascading(to: 3, 4, 5, 6, 9))
    var follower = TaskRecord.numbered(9).withFailures([6: .cancelled], batch: ended)
    try await store.expect(9, is: follower.cancelled(at: 1, because: 6))
    try await store.apply(.restart(1, at: 8), .cascading(to: 3, 4, 5, 6, 9))
    try await store.expect(3, is: .numbered(3, at: 8, from: 8).after(1))
    try await store.expect(
      5,
      is: last.with { record in
        record.availableDate = .second(8)
        record.countedFrom = .second(8)
      }
    )
    follower = .numbered(9, at: 8, from: 8).withFailures([:], batch: BatchProgress(total: 2))
    try await store.expect(9, is: follower)
    try await store.perform(7)
    try await store.perform(2, 1, at: 8)
    try await store.perform(3, 4, at: 8)
    try await store.perform(5, at: 8)
    // Restarting a member that succeeded also reverts the batch's progress.
    let lease = try await store.claimExactly(6, at: 8)[0]
    let batch = BatchProgress(total: 2, succeeded: 1)
    try await store.apply(.restart(7, at: 9), .cascading(batch: BatchProgress(total: 2)))
    let success = TaskChange.succeed(lease, at: .second(9), retains: true)
    try await store.apply(success, .cascading(batch: batch))
    try await store.perform(7, at: 9)
    try await store.perform(9, at: 9)
  }

  private static func checkOtherFailedDependency(in store: StoreProbe) async throws {
    let third = TaskRecord.numbered(3).after(1, 2)
    try await store.insert(.numbered(1), .numbered(2), third, .numbered(4).after(3))
    try await store.apply(.cancel(2, at: 1), .cascading(to: 3, 4))
    try await store.apply(.cancel(1, at: 2), .cascading())
    try await store.apply(.restart(2), .cascading())
    try await store.expect(3, is: third.withFailures([1: .cancelled]).cancelled(at: 1, because: 1))
    let fourth = TaskRecord.numbered(4).after(3).withFailures([3: .cancelled])
    try await store.expect(4, is: fourth.cancelled(at: 1, because: 3))
    try await store.apply(.restart(1), .cascading(to: 3, 4))
    try await store.expect(3, is: third)
    // A removed task can't be the cause.
    let seventh = TaskRecord.numbered(7).after(5, 6)
    try await store.insert(.numbered(5), .numbered(6), seventh)
    try await store.apply(.cancel(5, at: 3), .cascading(to: 7))
    try await store.apply(.cancel(6, at: 4, retains: false), .cascading())
    try await store.apply(.restart(5), .cascading())
    let cancelled = seventh.withFailures([6: .cancelled]).cancelled(at: 3, because: nil)
    try await store.expect(7, is: cancelled)
  }

  private static func checkUnrecordedFailure(in store: StoreProbe) async throws {
    let follower = TaskRecord.numbered(9)
    let ended = TaskRecord.numbered(1).before(9).cancelled(at: 1, because: nil)
    try await store.insert(follower, ended, .numbered(2).before(9))
    try await store.apply(.cancel(2), .cascading(to: 9, batch: BatchProgress(total: 2, failed: 2)))
    try await store.apply(.restart(2), .cascading(batch: BatchProgress(total: 2, failed: 1)))
    try await store.expect(
      9,
      is: follower.withFailures([:], batch: BatchProgress(total: 2, failed: 1))
        .cancelled(at: 1, because: nil)
    )
    try await store.apply(.restart(9))
    try await store.perform(2)
    try await store.perform(9)
  }

  private static func checkRestartWithTakenKey(in store: StoreProbe) async throws {
    let second = TaskRecord.numbered(2, key: "k").after(1)
    try await store.insert(.numbered(1), second)
    try await store.apply(.cancel(1), .cascading(to: 2))
    try await store.insert(.numbered(3, key: "k"))
    try await store.apply(.restart(1), .cascading())
    try await store.expect(2, is: second.cancelled(at: 1, because: nil))
    try await store.apply(.cancel(3, retains: false))
    try await store.apply(.restart(2))
    // Tasks 6 and 7 have the same key: 7 is cancelled before 6 is added.
    let sixth = TaskRecord.numbered(6, key: "other").after(4)
    let seventh = TaskRecord.numbered(7, key: "other").after(4, 5)
    try await store.insert(.numbered(4), .numbered(5), seventh)
    try await store.apply(.cancel(5, at: 2), .cascading(to: 7))
    try await store.insert(sixth)
    try await store.apply(.cancel(4, at: 3), .cascading(to: 6))
    try await store.apply(.restart(5), .cascading())
    let cancelled = seventh.withFailures([4: .cancelled]).cancelled(at: 2, because: 4)
    try await store.expect(7, is: cancelled)
    try await store.apply(.restart(4), .cascading(to: 6))
    try await store.expect(6, is: sixth)
    try await store.expect(7, is: seventh.cancelled(at: 2, because: nil))
  }
}
