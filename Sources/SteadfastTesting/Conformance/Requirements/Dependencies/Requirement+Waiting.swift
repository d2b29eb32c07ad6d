import SteadfastQueue
import SystemFoundation

/// Requirements about tasks that wait for other tasks.
extension PersistenceConformance.Requirement {
  static let waiting: [Self] = [
    Self(
      "dependencies.waits",
      "A task is not claimed before its dependencies, and the members of its batch, have ended or "
        + "were removed.",
      check: checkTaskWaitsForDependencies
    ),
    Self(
      "dependencies.unmet",
      "A new task that could never start refuses its batch. The outcome names the unmet dependency "
        + "with the lowest ID.",
      check: checkUnmetDependencies
    ),
    Self(
      "dependencies.ended-before",
      "A new task with the rule allEnded records which of its dependencies ended without success. "
        + "Failures, progress or a cause that it already has are ignored.",
      check: checkDependenciesThatEndedBefore
    ),
    Self(
      "dependencies.total",
      "A follower's batch counts each task that is added to it, even if the follower comes later "
        + "in the same batch of changes.",
      check: checkTotalOfBatch
    ),
    Self(
      "dependencies.member-again",
      "A new task that reuses the ID of a removed task counts in its batch like any other task, "
        + "and so does its end. An insertion that is sent again counts once.",
      check: checkReusedIDOfMember
    ),
  ]

  private static func checkTaskWaitsForDependencies(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, at: 50), .numbered(3))
    try await store.insert(
      .numbered(4, priority: 9, at: 20).after(1, 2),
      .numbered(5).after(3, rule: .allEnded)
    )
    let first = try await store.claim()
    try store.expect(first, [1, 3])
    let second = try await store.claim()
    try store.expect(second, [])
    try store.expectNextDate(second, by: 50, at: 0)
    try await store.apply(
      .retry(first.tasks[0].lease, availableDate: .second(60), retryCount: 1, failure: nil)
    )
    // A removed dependency counts as ended.
    let gone = TaskChange.abandon(first.tasks[1].lease, failure: .at(1), retains: false)
    try await store.apply(gone, .cascading())
    try await store.perform(5, at: 10)
    try await store.perform(2, at: 59)
    var lease = try await store.claimExactly(1, at: 60)[0]
    try await store.apply(.park(lease, failure: .at(2)))
    try store.expect(try await store.claim(at: 60), [])
    try await store.apply(.unpark(name: "A"))
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try store.expect(try await store.claim(at: 60), [])
    try await store.apply(.resume(.numbered(1)))
    lease = try await store.claimExactly(1, at: 60)[0]
    try store.expect(try await store.claim(at: 60), [])
    try await store.apply(.succeed(lease, at: .second(61), retains: true), .cascading())
    try await store.perform(4, at: 61)
    try await store.insert(.numbered(6, priority: 9), .numbered(7).before(6))
    try await store.insert(.numbered(8).before(6).after(2))
    try await store.perform(7, 8)
    try await store.perform(6)
  }

  private static func checkUnmetDependencies(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3, key: "k"))
    try await store.apply(.cancel(2))
    let new = TaskRecord.numbered(6)
    for (record, unmet) in [
      (new.after(9), 9), (new.after(1, 2), 2), (new.after(9, 2, 8), 2), (new.after(8, 9, 1), 8),
      (new.after(9, 2, rule: .allEnded), 9),
    ] {
      let outcomes = try await store.apply([
        .insert(.numbered(5), onDuplicate: .keep), .insert(record, onDuplicate: .keep),
        .cancel(3),
      ])
      let refused = ChangeOutcome.batchRefused
      let expected = [refused, .unmetDependency(.numbered(unmet)), refused]
      try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
      try await store.expectTasks([1, 2, 3])
    }
    try await store.expect(3, is: .numbered(3, key: "k"))
    // Unmet dependencies don't matter for a duplicate that is not added, or for an ended task.
    let duplicate = TaskRecord.numbered(6, key: "k").after(9)
    try await store.apply(.insert(duplicate, onDuplicate: .keep), .duplicate(of: .numbered(3)))
    try await store.insert(succeededCopy(of: new).after(9, 2))
    // Tasks that come earlier in the batch count as existing.
    try await store.insert(.numbered(7), .numbered(8).after(7))
    try await store.expectTasks([1, 2, 3, 6, 7, 8])
    // A refused task does not count as existing. After a refused insertion, the store may return
    // `batchRefused` instead.
    let outcomes = try await store.apply([
      .insert(.numbered(10).after(9), onDuplicate: .keep),
      .insert(.numbered(11).after(10, 12), onDuplicate: .keep),
    ])
    let later = outcomes.last == .batchRefused ? .batchRefused : unmetDependency(on: 10)
    let expected = [unmetDependency(on: 9), later]
    try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
  }

  private static func unmetDependency(on number: Int) -> ChangeOutcome {
    .unmetDependency(.numbered(number))
  }

  /// Returns a copy of the task that has succeeded.
  private static func succeededCopy(of record: TaskRecord) -> TaskRecord {
    record.with { record in
      record.state = .succeeded
      record.finishedDate = .second(1)
    }
  }

  private static func checkDependenciesThatEndedBefore(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3), .numbered(4))
    let leases = try await store.claimExactly(1, 2, 3, 4)
    try await store.apply(.succeed(leases[0], at: .second(1), retains: true))
    try await store.apply(.abandon(leases[1], failure: .at(2), retains: true))
    try await store.apply(.cancel(.claimed(leases[2]), at: .second(3), retains: true))
    let record = TaskRecord.numbered(5).after(1, 2, 3, rule: .allEnded)
    let progress = BatchProgress(total: 2, succeeded: 1)
    try await store.insert(
      record.withFailures([1: .abandoned, 4: .cancelled], batch: progress).with {
        $0.dependencies.cause = .numbered(4)
      }
    )
    let expected = record.withFailures([2: .abandoned, 3: .cancelled])
    try await store.expect(5, is: expected)
    let claim = try await store.claim()
    try store.expect(claim, [5])
    try store.expect(claim.tasks[0].record, is: expected.with { $0.state = .running })
    // A task need not wait for a dependency that has succeeded.
    try await store.insert(.numbered(6).after(1))
    try await store.perform(6)
  }

  private static func checkTotalOfBatch(in store: StoreProbe) async throws {
    let follower = TaskRecord.numbered(9)
    try await store.insert(.numbered(1).before(9), follower, .numbered(2, key: "k").before(9))
    try await store.expect(9, is: follower.withFailures([:], batch: BatchProgress(total: 2)))
    let leases = try await store.claimExactly(1, 2)
    // Neither a refused insertion nor a skipped duplicate counts in the batch.
    let outcomes = try await store.apply([
      .insert(.numbered(3).before(9), onDuplicate: .keep),
      .insert(.numbered(1, payload: 7), onDuplicate: .keep),
    ])
    let expected: [ChangeOutcome] = [.batchRefused, .identityTaken]
    try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
    try await store.apply(
      .insert(.numbered(3, key: "k").before(9), onDuplicate: .join),
      .duplicate(of: .numbered(2))
    )
    try await store.expect(9, is: follower.withFailures([:], batch: BatchProgress(total: 2)))
    try await store.insert(.numbered(3).before(9), succeededCopy(of: .numbered(4)).before(9))
    let progress = BatchProgress(total: 4, succeeded: 1)
    try await store.expect(9, is: follower.withFailures([:], batch: progress))
    // A task may have a follower that does not exist.
    try await store.insert(.numbered(5).before(99))
    try await store.perform(3, 5)
    let end = TaskChange.succeed(leases[0], at: .second(1), retains: false)
    try await store.apply(end, .cascading(batch: BatchProgress(total: 4, succeeded: 3)))
  }

  private static func checkReusedIDOfMember(in store: StoreProbe) async throws {
    let follower = TaskRecord.numbered(9).after(rule: .allEnded)
    try await store.insert(follower, .numbered(1).before(9), .numbered(2, at: 50).before(9))
    try await store.apply(
      .cancel(1, retains: false),
      .cascading(batch: BatchProgress(total: 2, failed: 1))
    )
    for _ in 1...2 {
      try await store.insert(.numbered(1).before(9))
      let batch = BatchProgress(total: 3, failed: 1)
      try await store.expect(9, is: follower.withFailures([1: .cancelled], batch: batch))
    }
    let leases = try await store.claimExactly(1)
    let end = TaskChange.succeed(leases[0], at: .second(2), retains: false)
    let batch = BatchProgress(total: 3, succeeded: 1, failed: 1)
    try await store.apply(end, .cascading(batch: batch))
    // The other task of the batch has not ended.
    let claim = try await store.claim()
    try store.expect(claim, [])
  }
}

/// Requirements about invalid dependencies, and about dependencies in reopened, shared and
/// concurrently used stores.
extension PersistenceConformance.Requirement {
  static let waitingInStores: [Self] = [
    Self(
      "form.dependencies",
      "An insertion is refused if the task waits for itself or for more than 10,000 others. It is "
        + "also refused if a task with dependencies or a follower would replace another one.",
      check: checkInvalidDependencies
    ),
    Self(
      "reopen.dependencies",
      "After the store is reopened, tasks have the same dependencies, recorded failures and batch "
        + "progress.",
      .reopened,
      check: checkDependenciesAfterReopening
    ),
    Self(
      "sharing.dependencies",
      "When two stores share their tasks, the end of a task in one store also counts for the tasks "
        + "that wait for it in the other.",
      .shared,
      check: checkSharedDependencies
    ),
    Self(
      "concurrency.dependencies",
      "When many tasks of a batch end at the same time, each end counts.",
      check: checkConcurrentEndsOfBatch
    ),
  ]

  private static func checkInvalidDependencies(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let new = TaskRecord.numbered(3)
    let many = new.with { $0.dependencies.tasks = Set((10...10_010).map(TaskID.numbered)) }
    let cases: [(String, TaskRecord, UniquePolicy)] = [
      ("waits for itself", new.after(1, 3), .keep), ("follows itself", new.before(3), .keep),
      ("waits for 10,001 tasks", many, .keep),
      ("waits and replaces", TaskRecord.numbered(3, key: "k").after(1), .replace),
      ("has a follower and replaces", TaskRecord.numbered(3, key: "k").before(1), .replace),
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

  private static func checkDependenciesAfterReopening(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(6), .numbered(10))
    try await store.insert(.numbered(3).after(2, 1), .numbered(9, at: 5).after(rule: .allEnded))
    try await store.insert(.numbered(4).before(9), .numbered(5).before(9), .numbered(7).after(6))
    try await store.insert(.numbered(8).after(6, 1, rule: .allEnded))
    try await store.apply(
      [.insert(.numbered(11).after(10), onDuplicate: .keep)],
      durability: .relaxed
    )
    try await store.apply(.cancel(6), .cascading(to: 7))
    let batch = BatchProgress(total: 2, failed: 1)
    try await store.apply(.cancel(4), .cascading(batch: batch))
    var next = store
    for _ in 1...2 {
      next = try await next.reopen()
      try await next.expectTasks(Array(1...11))
      try await next.expect(3, is: .numbered(3).after(2, 1))
      let cancelled = TaskRecord.numbered(7).after(6).withFailures([6: .cancelled])
      try await next.expect(7, is: cancelled.cancelled(at: 1, because: 6))
      let eighth = TaskRecord.numbered(8).after(6, 1, rule: .allEnded)
      try await next.expect(8, is: eighth.withFailures([6: .cancelled]))
      let follower = TaskRecord.numbered(9, at: 5).after(rule: .allEnded)
      try await next.expect(9, is: follower.withFailures([4: .cancelled], batch: batch))
      try await next.expect(5, is: .numbered(5).before(9))
      try await next.expect(11, is: .numbered(11).after(10))
    }
    try await next.perform(1, 10, 5, at: 10)
    try await next.perform(2, 8, 11, 9, at: 10)
    try await next.apply(.restart(6, at: 20), .cascading(to: 7))
    try await next.apply(.cancel(3))
    next = try await next.reopen()
    try await next.perform(6, at: 20)
    try await next.perform(7, at: 20)
  }

  private static func checkSharedDependencies(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2).after(1), .numbered(3).after(2), .numbered(9))
    let other = try await store.openSecondStore()
    try await other.insert(.numbered(4).before(9), .numbered(5).before(9))
    let leases = try await store.claimExactly(1, 4, 5)
    try await store.apply(.succeed(leases[0], at: .second(1), retains: false), .cascading())
    let lease = try await other.claimExactly(2)[0]
    let success = BatchProgress(total: 2, succeeded: 1)
    try await store.apply(
      .succeed(leases[1], at: .second(1), retains: true),
      .cascading(batch: success)
    )
    try await other.apply(.abandon(lease, failure: .at(2), retains: true), .cascading(to: 3))
    try await store.apply(.restart(2), .cascading(to: 3))
    let end = BatchProgress(total: 2, succeeded: 1, failed: 1)
    let abandon = TaskChange.abandon(leases[2], failure: .at(3), retains: true)
    try await other.apply(abandon, .cascading(to: 9, batch: end))
    try await store.perform(2)
    try await other.perform(3)
  }

  private static func checkConcurrentEndsOfBatch(in store: StoreProbe) async throws {
    for round in 0..<10 {
      let follower = round * 100 + 99
      let numbers = (0..<callers).map { round * 100 + $0 }
      try await store.insert(.numbered(follower))
      try await store.apply(
        numbers.map { .insert(.numbered($0).before(follower), onDuplicate: .keep) }
      )
      let leases = try await store.claim().tasks.map(\.lease)
      try store.expect("the claimed tasks", leases.map(\.id.number), numbers)
      store.recordStep("\(callers) callers each let one of them succeed")
      let outcomes = try await runConcurrently { caller in
        let success = TaskChange.succeed(leases[caller], at: .second(1), retains: caller % 2 == 0)
        return try await store.store.apply([success], durability: .relaxed)[0]
      }
      let expected = (1...callers).map { count in
        ChangeOutcome.cascading(batch: BatchProgress(total: callers, succeeded: count)).step
      }
      try store.expect("the outcomes", outcomes.map(\.step).sorted(), expected.sorted())
      try await store.perform(follower)
    }
  }
}
