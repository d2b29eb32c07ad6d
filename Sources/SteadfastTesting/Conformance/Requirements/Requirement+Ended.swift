import SteadfastQueue

/// Requirements about pruning retained tasks, and about dates after the clock goes back.
extension PersistenceConformance.Requirement {
  static let ended: [Self] = [
    Self(
      "prune.count",
      "Pruning by count keeps only the tasks in the state that ended last.",
      check: checkPruningByCount
    ),
    Self(
      "prune.date",
      "Pruning by date removes only the tasks in the state that ended before the date.",
      check: checkPruningByDate
    ),
    Self(
      "rebase.dates",
      "When the clock goes back, dates that were counted from a later date are moved, once, so "
        + "that they count from the new date. Dates that callers chose stay.",
      .oneClock,
      check: checkDatesOfNewTasksAfterRebase
    ),
    Self(
      "rebase.changes",
      "When the clock goes back, a task still waits as long as intended after a failure, a snooze "
        + "or a request. Dates that callers chose stay.",
      .oneClock,
      check: checkDatesOfChangedTasksAfterRebase
    ),
    Self(
      "rebase.keys",
      "When the clock goes back, a succeeded task still blocks its unique key for the intended "
        + "time.",
      .oneClock,
      check: checkUniqueKeysAfterRebase
    ),
    Self(
      "rebase.order",
      "Tasks whose dates were moved when the clock went back go behind the waiting tasks with the "
        + "same priority and date. Their order stays the same.",
      .oneClock,
      check: checkOrderAfterRebase
    ),
  ]

  /// Inserts tasks, and lets them succeed one by one, a second apart.
  private static func insertAndPerformTasks(_ numbers: [Int], in store: StoreProbe) async throws {
    for number in numbers { try await store.insert(.numbered(number)) }
    for (index, task) in try await store.claim().tasks.enumerated() {
      try await store.apply(.succeed(task.lease, at: .second(Double(index + 1)), retains: true))
    }
  }

  private static func checkPruningByCount(in store: StoreProbe) async throws {
    try await insertAndPerformTasks([5, 1, 4, 2], in: store)
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

  private static func checkPruningByDate(in store: StoreProbe) async throws {
    try await insertAndPerformTasks([5, 1, 4, 2], in: store)
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

  private static func checkDatesOfNewTasksAfterRebase(in store: StoreProbe) async throws {
    let records = [
      // Task 1 is available at once, task 2 after a delay, and task 3 on a chosen date.
      TaskRecord.numbered(1), .numbered(2, at: 60, from: 0), .numbered(3, at: 500),
      // Task 5 has dates before its creation, which were not counted from its creation date.
      .numbered(4, key: "a", uniqueUntil: 60, latest: 90),
      .numbered(5, key: "b", uniqueUntil: -20, latest: -10),
      // Task 6 was created while the clock was right.
      .numbered(6, at: 30, created: -60, from: -60),
    ]
    for record in records { try await store.insert(record) }
    let before = try await store.tasks()
    for _ in 0..<2 {
      try await store.apply(.rebase(.second(-50)))
      for record in before.prefix(5) {
        let expected = record.withCreatedDate(.second(-50)).afterRebase { $0 - 50 }
        try await store.expect(record.id.number, is: expected)
      }
      try await store.expect(6, is: before[5])
    }
    let claim = try await store.claim(at: -50)
    try store.expect(claim, [1, 4, 5])
    try store.expectNextDate(claim, by: 10, at: -50)
  }

  private static func checkDatesOfChangedTasksAfterRebase(in store: StoreProbe) async throws {
    // A different change sets the date of each task, for example a retry or a snooze.
    for number in 1...9 { try await store.insert(.numbered(number, at: -70, created: -70)) }
    let leases = try await store.claimExactly(1, 2, 3, 4, 5, 6, 7, 8, 9)
    let failure = TaskFailure.at(100)
    let changes: [TaskChange] = [
      .retry(leases[0], availableDate: .second(130), retryCount: 1, failure: failure),
      .retry(
        leases[1],
        availableDate: .second(130),
        retryCount: 0,
        failure: nil,
        countedFrom: .second(100)
      ),
      .retry(leases[2], availableDate: .second(130), retryCount: 0, failure: nil),
      .reschedule(
        .claimed(leases[3]),
        availableDate: .second(130),
        countedFrom: .second(100)
      ), .reschedule(.claimed(leases[4]), availableDate: .second(130)),
      .restart(.claimed(leases[5]), availableDate: .second(100)),
      .abandon(leases[6], failure: failure, retains: true), .park(leases[7], failure: failure),
    ]
    for change in changes { try await store.apply(change) }
    // A date that is chosen after a failure stays.
    try await store.apply(
      .retry(leases[8], availableDate: .second(130), retryCount: 1, failure: failure)
    )
    try await store.apply(.reschedule(.unclaimed(.numbered(9)), availableDate: .second(130)))
    let before = try await store.tasks()
    for _ in 0..<2 {
      try await store.apply(.rebase(.second(-50)))
      for record in before {
        try await store.expect(record.id.number, is: record.afterRebase { $0 - 150 })
      }
    }
    let claim = try await store.claim(at: -20)
    try store.expect(claim, [6, 1, 2, 4])
    try store.expectNextDate(claim, by: 130, at: -20)
  }

  private static func checkUniqueKeysAfterRebase(in store: StoreProbe) async throws {
    func task(_ number: Int, key: String, created: Double) -> TaskRecord {
      .numbered(number, at: created, key: key, uniqueUntil: created + 60, created: created)
    }
    // The clock was right when task 3 was created, and ahead when tasks 1 and 2 were created.
    try await store.insert(task(1, key: "a", created: 0), task(2, key: "b", created: 1_000))
    try await store.insert(task(3, key: "c", created: -60))
    for task in try await store.claim(at: 1_000).tasks {
      try await store.apply(.succeed(task.lease, at: .second(1_000), retains: true))
    }
    try await store.apply(.rebase(.second(-50)))
    for (number, key, until) in [(4, "a", 10.0), (5, "b", 10), (6, "c", 0)] {
      let new = task(number, key: key, created: until - 0.5)
      let twin = TaskID.numbered(number - 3)
      try await store.apply(.insert(new, onDuplicate: .keep), .duplicate(of: twin))
      try await store.insert(task(number, key: key, created: until))
    }
  }

  private static func checkOrderAfterRebase(in store: StoreProbe) async throws {
    try await store.insert(.numbered(2), .numbered(1), .numbered(4, at: -50), .numbered(3))
    try await store.apply(.rebase(.second(-50)))
    try store.expect(try await store.claim(at: -50), [4, 2, 1, 3])
  }
}

extension TaskRecord {
  /// Returns the expected record after a rebase to the date 50 seconds before the start date.
  fileprivate func afterRebase(movingDates date: (Double) -> Double) -> TaskRecord {
    with { record in
      if state.isFinished { return }
      record.failedDate = failedDate.map { .second(date($0.second)) }
      guard let countedFrom, countedFrom.second > -50 else { return }
      record.availableDate = .second(date(availableDate.second))
      record.countedFrom = .second(date(countedFrom.second))
    }
  }
}
