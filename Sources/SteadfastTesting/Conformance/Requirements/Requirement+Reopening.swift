import SteadfastQueue
import SystemFoundation

/// Requirements about tasks that outlive their store.
extension PersistenceConformance.Requirement {
  static let reopening: [Self] = [
    Self(
      "reopen.records",
      "After the store is reopened, tasks in each state come back with every field.",
      .reopened,
      check: checkRecordsAfterReopening
    ),
    Self(
      "reopen.metadata",
      "After the store is reopened, tasks have the same metadata, even after updates and "
        + "replacements.",
      .reopened,
      check: checkMetadataAfterReopening
    ),
    Self(
      "reopen.order",
      "After the store is reopened, tasks have the same order, even after retries and releases.",
      .reopened,
      check: checkOrderAfterReopening
    ),
    Self(
      "reopen.keys",
      "After the store is reopened, tasks have the same roles, and block their unique keys for the "
        + "same time.",
      .reopened,
      check: checkUniqueKeysAfterReopening
    ),
    Self(
      "reopen.removed",
      "After the store is reopened, removed tasks don't come back, and changed tasks stay changed.",
      .reopened,
      check: checkRemovalsAfterReopening
    ),
    Self(
      "reopen.interrupted",
      "When the store is reopened, a running task becomes available at its previous position, with "
        + "one more interruption. A retry resets the task's interruptions.",
      .reopenedByOneQueue,
      check: checkInterruptionsAfterReopening
    ),
    Self(
      "reopen.leases",
      "After the store is reopened, earlier leases are stale, even if their tasks are claimed "
        + "again.",
      .reopenedByOneQueue,
      check: checkLeasesAfterReopening
    ),
  ]

  private static func checkRecordsAfterReopening(in store: StoreProbe) async throws {
    _ = try await insertTaskOfEachState(in: store)
    try await store.insert(.withAllFields(7), .withAllFields(8))
    try await store.insert(
      extremeTask(9, priority: .max, maxRetries: .alwaysRetry, date: .distantPast),
      extremeTask(10, priority: .min, maxRetries: .atMost(0), date: .distantFuture)
    )
    try await store.insert(taskWithLargePayload(11))
    try await store.apply([.insert(.numbered(12), onDuplicate: .keep)], durability: .relaxed)
    var records = try await store.tasks()
    try store.expect("the tasks", records.map(\.id.number), Array(1...12))
    // The records above may come from the store's memory, although the store wrote them wrongly. So
    // expect the original records from the reopened store.
    let originals = [
      (7, TaskRecord.withAllFields(7)), (8, .withAllFields(8)), (11, taskWithLargePayload(11)),
    ]
    for (number, expected) in originals {
      records[number - 1] = expected
    }
    var next = store
    for _ in 1...2 {
      next = try await next.reopen()
      for record in records { try await next.expect(record.id.number, is: record) }
      try await next.expectTasks(Array(1...12))
    }
  }

  private static func checkOrderAfterReopening(in store: StoreProbe) async throws {
    try await store.insert(.numbered(5), .numbered(3), .numbered(4), .numbered(9, priority: 1))
    try await store.insert(.numbered(1), .numbered(2), .numbered(6, at: -1))
    let leases = try await store.claim(3).tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), [9, 6, 5])
    try await store.apply(.release(leases[0]))
    try await store.apply(.release(leases[1]))
    try await store.apply(
      .retry(leases[2], availableDate: .second(0), retryCount: 1, failure: .at(0))
    )
    try await store.apply(.pause(.unclaimed(.numbered(3))))
    try await store.apply(.resume(.numbered(3)))
    var next = try await store.reopen()
    try next.expect(try await next.claim(2), [9, 6])
    for task in try await next.claim(1).tasks { try await next.apply(.release(task.lease)) }
    try await next.insert(.numbered(7))
    try await next.apply(.cancel(.unclaimed(.numbered(2)), at: .second(1), retains: false))
    next = try await next.reopen()
    let rest = try await next.claim().tasks.map(\.record.id.number).filter { $0 != 9 && $0 != 6 }
    try next.expect("the claimed tasks", rest, [4, 1, 5, 3, 7])
  }

  private static func checkUniqueKeysAfterReopening(in store: StoreProbe) async throws {
    _ = try await insertTaskOfEachState(in: store)
    try await store.insert(.numbered(7, key: "twins"))
    let lease = try await store.claim(1).tasks.first.required().lease
    try await store.insert(.numbered(8, key: "twins"))
    try await store.apply(.pause(.claimed(lease)))
    try await store.insert(.numbered(9, key: "same", uniqueUntil: 60))
    let other = try await store.claim(1).tasks.first.required().lease
    try await store.apply(.succeed(other, at: .second(1), retains: true))
    let next = try await store.reopen()
    for number in 1...6 {
      let twin = TaskRecord.numbered(20 + number, key: "key \(number)")
      try await next.apply(
        .insert(twin, onDuplicate: .keep),
        number <= 3 ? .duplicate(of: .numbered(number)) : .done
      )
    }
    let twin = TaskRecord.numbered(30, key: "twins")
    try await next.apply(.insert(twin, onDuplicate: .keep), .duplicate(of: .numbered(8)))
    try store.expect(try await next.claim(at: 9), [24, 25, 26, 1])
    try await next.apply(.cancel(.unclaimed(.numbered(7)), at: .second(1), retains: false))
    try await next.apply(.insert(twin, onDuplicate: .join), .duplicate(of: .numbered(8)))
    try store.expect(try await next.claim(at: 9), [8])
    try await next.apply(
      .insert(.numbered(31, key: "same", created: 59), onDuplicate: .keep),
      .duplicate(of: .numbered(9))
    )
    try await next.insert(.numbered(31, key: "same", created: 60))
  }

  private static func checkRemovalsAfterReopening(in store: StoreProbe) async throws {
    for number in 1...6 { try await store.insert(.numbered(number, key: "key \(number)")) }
    let leases = try await store.claim(3).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 3)
    try await store.apply(.succeed(leases[0], at: .second(1), retains: false))
    try await store.apply(.abandon(leases[1], failure: .at(1), retains: true))
    try await store.apply(.succeed(leases[2], at: .second(1), retains: true))
    try await store.apply(.prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: .second(0)))
    try await store.apply(.cancel(.unclaimed(.numbered(4)), at: .second(1), retains: false))
    let twin = TaskRecord.numbered(7, at: 5, key: "key 5")
    try await store.apply(.insert(twin, onDuplicate: .replace), .replaced(.numbered(5)))
    try await store.apply(.restart(.unclaimed(.numbered(6)), availableDate: .second(9)))
    try await store.apply(.remove(.numbered(2)))
    let successor = TaskRecord.numbered(8, key: "key 5")
    let holder = try await store.claimOne(at: 5)
    try await store.apply(.insert(successor, onDuplicate: .keep))
    try await store.apply(
      .retry(holder, availableDate: .second(20), retryCount: 1, failure: nil),
      .superseded(by: .numbered(8))
    )
    let next = try await store.reopen()
    try await next.expectTasks([6, 8])
    try await next.expect(6, is: .numbered(6, at: 9, key: "key 6", from: 9))
    for number in 1...4 {
      let new = TaskRecord.numbered(10 + number, key: "key \(number)")
      try await next.apply(.insert(new, onDuplicate: .reject))
    }
  }

  private static func checkInterruptionsAfterReopening(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2), .numbered(3))
    try store.expect(try await store.claim(2), [1, 2])
    let second = try await store.reopen()
    try await second.expect(1, is: .numbered(1, key: "k").with { $0.interruptionCount = 1 })
    let claim = try await second.claim(1)
    try second.expect(claim, [1])
    let third = try await second.reopen()
    try await third.expect(1, is: .numbered(1, key: "k").with { $0.interruptionCount = 2 })
    let claims = try await third.claim()
    try third.expect(claims, [1, 2, 3])
    try third.expect("interruptions", claims.tasks.map(\.record.interruptionCount), [2, 1, 0])
    try await third.apply(
      .retry(claims.tasks[0].lease, availableDate: .second(9), retryCount: 1, failure: nil)
    )
    try await third.apply(.release(claims.tasks[1].lease))
    let counts = try await third.tasks().map(\.interruptionCount)
    try third.expect("interruptions after a retry and a release", counts, [0, 1, 0])
  }

  private static func checkLeasesAfterReopening(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let old = try await store.claimOne()
    let next = try await store.reopen()
    for change in changes(with: old) { try await next.apply(change, .stale) }
    let present = try await next.claimOne()
    for change in changes(with: old) { try await next.apply(change, .stale) }
    try await next.apply(.succeed(present, at: .second(1), retains: false))
  }
}
