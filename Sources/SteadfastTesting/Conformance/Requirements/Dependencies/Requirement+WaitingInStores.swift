import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Requirements about the form of tasks that wait, and about stores that hold them.
extension PersistenceConformance.Requirement {
  static let waitingInStores: [Self] = [
    Self(
      "form.dependencies",
      "A task that waits for itself or for more than 10,000 others is refused, and so is one that "
        + "waits and would replace another one.",
      check: formOfDependencies
    ),
    Self(
      "reopen.dependencies",
      "Tasks wait for the same others when the store is opened again, and know the same of them.",
      .reopened,
      check: reopenedDependencies
    ),
    Self(
      "sharing.dependencies",
      "Of two stores that are open at once, what one ends is an end for the tasks that wait in the "
        + "other.",
      .shared,
      check: sharedDependencies
    ),
    Self(
      "concurrency.dependencies",
      "Of many ends of one batch at the same time, each one counts.",
      check: concurrentEndsOfBatch
    ),
  ]

  private static func formOfDependencies(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let new = TaskRecord.numbered(3)
    let many = new.with { $0.dependencies.tasks = Set((10...10_010).map(TaskID.numbered)) }
    let cases: [(String, TaskRecord, UniquePolicy)] = [
      ("waits for itself", new.after(1, 3), .keep), ("follows itself", new.before(3), .keep),
      ("waits for 10,001 tasks", many, .keep),
      ("waits and replaces", TaskRecord.numbered(3, key: "k").after(1), .replace),
      ("is followed and replaces", TaskRecord.numbered(3, key: "k").before(1), .replace),
    ]
    for (text, record, policy) in cases {
      try await store.expectError("insert 2 and a task that \(text)", isInvalidArgument) {
        _ = try await store.store.apply(
          [.insert(.numbered(2), onDuplicate: .keep), .insert(record, onDuplicate: policy)],
          durability: .durable
        )
      }
    }
    try await store.expectTasks([1])
  }

  private static func reopenedDependencies(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(6), .numbered(10))
    try await store.insert(.numbered(3).after(2, 1), .numbered(9, at: 5).after(rule: .allEnded))
    try await store.insert(.numbered(4).before(9), .numbered(5).before(9), .numbered(7).after(6))
    try await store.insert(.numbered(8).after(6, 1, rule: .allEnded))
    try await store.apply(
      [.insert(.numbered(11).after(10), onDuplicate: .keep)],
      durability: .relaxed
    )
    try await store.apply(.cancel(6), .along(7))
    let batch = BatchProgress(total: 2, failed: 1)
    try await store.apply(.cancel(4), .along(batch: batch))
    var next = store
    for _ in 1...2 {
      next = try await next.reopened()
      try await next.expectTasks(Array(1...11))
      try await next.expect(3, is: .numbered(3).after(2, 1))
      let cancelled = TaskRecord.numbered(7).after(6).noting([6: .cancelled])
      try await next.expect(7, is: cancelled.cancelled(at: 1, because: 6))
      let eighth = TaskRecord.numbered(8).after(6, 1, rule: .allEnded)
      try await next.expect(8, is: eighth.noting([6: .cancelled]))
      let follower = TaskRecord.numbered(9, at: 5).after(rule: .allEnded)
      try await next.expect(9, is: follower.noting([4: .cancelled], batch: batch))
      try await next.expect(5, is: .numbered(5).before(9))
      try await next.expect(11, is: .numbered(11).after(10))
    }
    try await next.perform(1, 10, 5, at: 10)
    try await next.perform(2, 8, 11, 9, at: 10)
    try await next.apply(.restart(6, at: 20), .along(7))
    try await next.apply(.cancel(3))
    next = try await next.reopened()
    try await next.perform(6, at: 20)
    try await next.perform(7, at: 20)
  }

  private static func sharedDependencies(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), .numbered(9))
    let other = try await store.another()
    try await other.insert(.numbered(4).before(9), .numbered(5).before(9))
    let leases = try await store.claimed(1, 4, 5)
    try await store.apply(.succeed(leases[0], at: .second(1), retains: false), .along())
    let lease = try await other.claimed(2)[0]
    let success = BatchProgress(total: 2, succeeded: 1)
    try await store.apply(
      .succeed(leases[1], at: .second(1), retains: true),
      .along(batch: success)
    )
    try await other.apply(.abandon(lease, failure: .at(2), retains: true), .along(3))
    try await store.apply(.restart(2), .along(3))
    let end = BatchProgress(total: 2, succeeded: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[2], failure: .at(3), retains: true)
    try await other.apply(abandon, .along(9, batch: end))
    try await store.perform(2)
    try await other.perform(3)
  }

  private static func concurrentEndsOfBatch(_ store: StoreProbe) async throws {
    for round in 0..<10 {
      let follower = round * 100 + 99
      let numbers = (0..<callers).map { round * 100 + $0 }
      try await store.insert(.numbered(follower))
      try await store.apply(
        numbers.map { .insert(.numbered($0).before(follower), onDuplicate: .keep) }
      )
      let leases = try await store.claim().tasks.map(\.lease)
      try store.expect("the claimed tasks", leases.map(\.id.number), numbers)
      store.note("\(callers) callers each let one of them succeed")
      let outcomes = try await atOnce { caller in
        let success = TaskChange.succeed(leases[caller], at: .second(1), retains: caller % 2 == 0)
        return try await store.store.apply([success], durability: .relaxed)[0]
      }
      let expected = (1...callers).map { count in
        ChangeOutcome.along(batch: BatchProgress(total: callers, succeeded: count)).step
      }
      try store.expect("the outcomes", outcomes.map(\.step).sorted(), expected.sorted())
      try await store.perform(follower)
    }
  }
}
