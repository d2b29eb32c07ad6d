import SteadfastQueue
import SystemFoundation

/// Requirements about batches, which are stored as a whole or not at all.
extension PersistenceConformance.Requirement {
  static let batches: [Self] = [
    Self(
      "batch.outcomes",
      "A batch has an outcome for each of its changes, in order; an empty batch has none.",
      check: checkOutcomesOfBatch
    ),
    Self(
      "batch.large",
      "The store keeps the order of a thousand tasks that are added in one batch.",
      check: checkOrderOfLargeBatch
    ),
    Self(
      "batch.stale",
      "A stale change or a skipped duplicate does not affect the rest of its batch.",
      check: checkStaleChangeInBatch
    ),
    Self(
      "batch.rejected",
      "If one insertion of a batch is rejected, nothing of the batch is stored.",
      check: checkRejectedInsertionInBatch
    ),
    Self(
      "batch.identity-taken",
      "If the ID of one insertion is taken, nothing of the batch is stored.",
      check: checkTakenIDInBatch
    ),
    Self(
      "batch.sent-again",
      "An insertion that is sent again has the outcome `done` and changes nothing. The insertion "
        + "of a different task with the same ID is refused.",
      check: checkInsertionsSentAgain
    ),
    Self(
      "batch.transient",
      "A call that throws a transient error has stored nothing, so it can be made again.",
      check: checkTransientErrors
    ),
  ]

  private static func checkOutcomesOfBatch(in store: StoreProbe) async throws {
    try await store.apply([])
    try await store.apply([], durability: .relaxed)
    try await store.insert(.numbered(1), .numbered(2), .numbered(3))
    let leases = try await store.claim(2).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    let outcomes = try await store.apply(
      [
        .succeed(leases[0], at: .second(1), retains: true),
        .retry(leases[1], availableDate: .second(5), retryCount: 1, failure: nil),
        .cancel(.unclaimed(.numbered(3)), at: .second(2), retains: false),
        .insert(.numbered(4), onDuplicate: .reject), .resume(.numbered(9)),
      ],
      durability: .relaxed
    )
    try store.expect("the outcomes", outcomes, [.done, .done, .done, .done, .stale])
    try await store.expectTasks([1, 2, 4])
    try store.expect(try await store.claim(at: 5), [4, 2])
  }

  private static func checkOrderOfLargeBatch(in store: StoreProbe) async throws {
    let batch = (1...1000).reversed().map { TaskRecord.numbered($0) }
    store.recordStep("apply 1000 insertions, numbers 1000 to 1")
    let outcomes = try await store.store.apply(
      batch.map { .insert($0, onDuplicate: .keep) },
      durability: .durable
    )
    try store.expect("the number of outcomes", outcomes.count, 1000)
    try store.expect("whether all are done", outcomes.allSatisfy { $0 == .done }, true)
    try store.expect(try await store.claim(), batch.map(\.id.number))
  }

  private static func checkStaleChangeInBatch(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2))
    let outcomes = try await store.apply([
      .insert(.numbered(3), onDuplicate: .reject),
      .succeed(Lease(id: .numbered(2), token: 99), at: .second(1), retains: false),
      .insert(.numbered(4, key: "k"), onDuplicate: .keep),
      .insert(.numbered(5, key: "new"), onDuplicate: .keep),
      .insert(.numbered(6, key: "new"), onDuplicate: .keep),
    ])
    let expected: [ChangeOutcome] = [
      .done, .stale, .duplicate(of: .numbered(1)), .done, .duplicate(of: .numbered(5)),
    ]
    try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
    try await store.expectTasks([1, 2, 3, 5])
  }

  private static func checkRejectedInsertionInBatch(in store: StoreProbe) async throws {
    try await checkRefusedBatch(
      in: store,
      because: .insert(.numbered(5, key: "k"), onDuplicate: .reject),
      outcome: .duplicate(of: .numbered(1))
    )
  }

  private static func checkTakenIDInBatch(in store: StoreProbe) async throws {
    try await checkRefusedBatch(
      in: store,
      because: .insert(.numbered(1), onDuplicate: .keep),
      outcome: .identityTaken
    )
  }

  private static func checkTransientErrors(in store: StoreProbe) async throws {
    var value: [UInt8]?
    for number in 1...20 {
      try await store.insert(.numbered(number))
      let claimed = try await store.claim(1).tasks.first.required()
      try store.expect("the claimed task", claimed.record.id.number, number)
      try await store.apply(.succeed(claimed.lease, at: .second(1), retains: false))
      let next = [UInt8(number)]
      try await store.apply(.setValue(named: "count", from: value, to: next))
      value = next
    }
    try await store.expectTasks([])
  }

  private static func checkInsertionsSentAgain(in store: StoreProbe) async throws {
    let first = TaskRecord.numbered(1, at: 5, key: "k", order: "o")
    let batch: [TaskChange] = [
      .insert(first, onDuplicate: .reject), .insert(.numbered(2), onDuplicate: .keep),
      .insert(.numbered(3, priority: 1), onDuplicate: .keep),
    ]
    let expected = [ChangeOutcome.done.step, ChangeOutcome.done.step, ChangeOutcome.done.step]
    try store.expect("the outcomes", try await store.apply(batch).map(\.step), expected)
    let lease = try await store.claim(1).tasks.first.required().lease
    try store.expect("the claimed task", lease.id.number, 3)
    try await store.insert(.numbered(4))
    try await store.apply(.update(.numbered(2), TaskUpdate(tags: ["new"])))
    let before = try await store.tasks()
    for _ in 0..<2 {
      try store.expect("the outcomes", try await store.apply(batch).map(\.step), expected)
      for record in before { try await store.expect(record.id.number, is: record) }
      try await store.expectTasks([1, 2, 3, 4])
    }
    for other: TaskRecord in [
      .numbered(1, at: 5, key: "other", order: "o"), .numbered(1, at: 5, key: "k", order: "p"),
      .numbered(2, name: "B"), .numbered(2, created: -1), .numbered(2, payload: 7),
    ] {
      try await store.apply(.insert(other, onDuplicate: .keep), .identityTaken)
    }
    for record in before { try await store.expect(record.id.number, is: record) }
    try await store.apply(.succeed(lease, at: .second(6), retains: true))
    try store.expect("the outcomes", try await store.apply(batch).map(\.step), expected)
    try store.expect(try await store.claim(at: 6), [2, 4, 1])
    try await store.expectTasks([3], TaskFilter(states: [.succeeded]))
  }

  /// Expects that a batch is refused because of one insertion, the culprit, with this outcome.
  private static func checkRefusedBatch(
    in store: StoreProbe,
    because culprit: TaskChange,
    outcome: ChangeOutcome
  ) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2, at: 60, key: "twin"))
    try await store.insert(.numbered(3, at: -1), .numbered(8, at: 70))
    let lease = try await store.claim(1).tasks.first.required().lease
    let before = try await store.tasks()
    let outcomes = try await store.apply([
      .insert(.numbered(4, key: "new"), onDuplicate: .keep),
      .succeed(lease, at: .second(1), retains: false), culprit,
      .cancel(.unclaimed(.numbered(8)), at: .second(1), retains: true),
      .insert(.numbered(6, key: "twin"), onDuplicate: .replace),
    ])
    let refused = ChangeOutcome.batchRefused
    let expected = [refused, refused, outcome, refused, refused]
    try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
    try await store.expectTasks([1, 2, 3, 8])
    for record in before { try await store.expect(record.id.number, is: record) }
    // No task holds the key of the refused insertion, and the lease is still valid.
    let later = TaskRecord.numbered(4, at: 60, key: "new")
    try await store.apply(.insert(later, onDuplicate: .reject))
    try await store.apply(.cancel(.unclaimed(.numbered(4)), at: .second(1), retains: false))
    try await store.apply(.release(lease))
    try store.expect(try await store.claim(), [3, 1])
  }
}
