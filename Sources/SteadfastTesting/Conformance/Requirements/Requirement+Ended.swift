import SteadfastQueue

/// Requirements about retained tasks, and about dates when the clock goes back.
extension PersistenceConformance.Requirement {
  static let ended: [Self] = [
    Self(
      "prune.count",
      "Pruning by count leaves the tasks that ended last in the state, and no others of it.",
      check: pruneByCount
    ),
    Self(
      "prune.date",
      "Pruning by date removes the tasks that ended before it in the state, and no others.",
      check: pruneByDate
    ),
    Self(
      "rebase.dates",
      "When the clock goes back, what the queue had dated later is moved; chosen dates stay.",
      .oneQueue,
      check: rebaseDates
    ),
    Self(
      "rebase.order",
      "Tasks that the clock has moved wait behind their equals, in the order that they had.",
      .oneQueue,
      check: rebaseOrder
    ),
  ]

  /// Inserts tasks, and lets them succeed one second after another.
  private static func succeed(_ numbers: [Int], _ store: StoreProbe) async throws {
    for number in numbers { try await store.insert(.numbered(number)) }
    for (index, task) in try await store.claim().tasks.enumerated() {
      try await store.apply(.succeed(task.lease, at: .second(Double(index + 1)), retains: true))
    }
  }

  private static func pruneByCount(_ store: StoreProbe) async throws {
    try await succeed([5, 1, 4, 2], store)
    try await store.insert(.numbered(6), .numbered(7), .numbered(8))
    try await store.apply(.cancel(.unclaimed(.numbered(6)), at: .second(0), retains: true))
    try await store.apply(.pause(.unclaimed(.numbered(7))))
    try await store.apply(.prune(.succeeded, endedBefore: nil, keepingLatest: 9, now: .second(0)))
    try await store.expectTasks([1, 2, 4, 5, 6, 7, 8])
    try await store.apply(.prune(.succeeded, endedBefore: nil, keepingLatest: 2, now: .second(0)))
    try await store.expectTasks([2, 4, 6, 7, 8])
    try await store.apply(.prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: .second(0)))
    try await store.expectTasks([6, 7, 8])
    try await store.apply(.prune(.abandoned, endedBefore: nil, keepingLatest: 0, now: .second(0)))
    try await store.apply(.prune(.cancelled, endedBefore: nil, keepingLatest: nil, now: .second(0)))
    try await store.expectTasks([6, 7, 8])
  }

  private static func pruneByDate(_ store: StoreProbe) async throws {
    try await succeed([5, 1, 4, 2], store)
    try await store.insert(.numbered(6))
    try await store.apply(.cancel(.unclaimed(.numbered(6)), at: .second(0), retains: true))
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(1), keepingLatest: nil, now: .second(0))
    )
    try await store.expectTasks([1, 2, 4, 5, 6])
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(2.5), keepingLatest: nil, now: .second(0))
    )
    try await store.expectTasks([2, 4, 6])
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(1), keepingLatest: 1, now: .second(0))
    )
    try await store.expectTasks([2, 6])
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(100), keepingLatest: 1, now: .second(0))
    )
    try await store.expectTasks([6])
  }

  private static func rebaseDates(_ store: StoreProbe) async throws {
    // Task 1 is to be performed at once, 2 has a chosen date, 3 has failed, and 4 has ended.
    try await store.insert(.numbered(3), .numbered(4))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.apply(
      .retry(leases[0], availableDate: .second(130), retryCount: 1, failure: .at(100))
    )
    try await store.apply(.abandon(leases[1], failure: .at(100), retains: true))
    try await store.insert(.numbered(1), .numbered(2, at: 500))
    let before = try await store.tasks()
    try await store.apply(.rebase(.second(-50)))
    try await store.expect(1, is: .numbered(1, at: -50))
    try await store.expect(2, is: .numbered(2, at: 500))
    let retried = before[2].with { record in
      record.availableDate = .second(-20)
      record.failedDate = .second(-50)
    }
    try await store.expect(3, is: retried)
    try await store.expect(4, is: before[3])
    let claim = try await store.claim(at: -50)
    try store.expect(claim, [1])
    try store.expectNextDate(claim, by: -20, at: -50)
  }

  private static func rebaseOrder(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(2), .numbered(1), .numbered(4, at: -50), .numbered(3))
    try await store.apply(.rebase(.second(-50)))
    try store.expect(try await store.claim(at: -50), [4, 2, 1, 3])
  }
}
