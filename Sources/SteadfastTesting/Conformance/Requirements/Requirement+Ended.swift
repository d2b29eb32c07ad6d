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
      "When the clock goes back, the dates that were counted from a later one are counted from the "
        + "present one, once; dates that were chosen stay.",
      .oneClock,
      check: rebaseDates
    ),
    Self(
      "rebase.changes",
      "When the clock goes back, a task waits as long as it was to wait after a failure, a snooze or a "
        + "request; dates that were chosen stay.",
      .oneClock,
      check: rebaseChanges
    ),
    Self(
      "rebase.keys",
      "When the clock goes back, a task that has succeeded stands for its key as long as it was to.",
      .oneClock,
      check: rebaseKeys
    ),
    Self(
      "rebase.order",
      "Tasks that the clock has moved wait behind their equals, in the order that they had.",
      .oneClock,
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
    let records = [
      // 1 to 3 were to be performed at once, after a delay, and on a date that was chosen.
      TaskRecord.numbered(1), .numbered(2, at: 60, from: 0), .numbered(3, at: 500),
      // Of 5, what is earlier was counted from other dates.
      .numbered(4, key: "a", uniqueUntil: 60, latest: 90),
      .numbered(5, key: "b", uniqueUntil: -20, latest: -10),
      // The clock was right by then.
      .numbered(6, at: 30, created: -60, from: -60),
    ]
    for record in records { try await store.insert(record) }
    let before = try await store.tasks()
    for _ in 0..<2 {
      try await store.apply(.rebase(.second(-50)))
      for record in before.prefix(5) {
        try await store.expect(record.id.number, is: record.dated(.second(-50)).moved { $0 - 50 })
      }
      try await store.expect(6, is: before[5])
    }
    let claim = try await store.claim(at: -50)
    try store.expect(claim, [1, 4, 5])
    try store.expectNextDate(claim, by: 10, at: -50)
  }

  private static func rebaseChanges(_ store: StoreProbe) async throws {
    // Each task gets its date from a change: a retry, a snooze, and so on.
    for number in 1...9 { try await store.insert(.numbered(number, at: -70, created: -70)) }
    let leases = try await store.claimed(1, 2, 3, 4, 5, 6, 7, 8, 9)
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
        try await store.expect(record.id.number, is: record.moved { $0 - 150 })
      }
    }
    let claim = try await store.claim(at: -20)
    try store.expect(claim, [6, 1, 2, 4])
    try store.expectNextDate(claim, by: 130, at: -20)
  }

  private static func rebaseKeys(_ store: StoreProbe) async throws {
    func task(_ number: Int, key: String, created: Double) -> TaskRecord {
      .numbered(number, at: created, key: key, uniqueUntil: created + 60, created: created)
    }
    // The clock was right when 3 was made, and ahead when 1 and 2 were.
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

  private static func rebaseOrder(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(2), .numbered(1), .numbered(4, at: -50), .numbered(3))
    try await store.apply(.rebase(.second(-50)))
    try store.expect(try await store.claim(at: -50), [4, 2, 1, 3])
  }
}

extension TaskRecord {
  /// Returns the task as after a rebase to 50 seconds before the check.
  fileprivate func moved(_ date: (Double) -> Double) -> TaskRecord {
    with { record in
      if state.isFinished { return }
      record.failedDate = failedDate.map { .second(date($0.second)) }
      guard let countedFrom, countedFrom.second > -50 else { return }
      record.availableDate = .second(date(availableDate.second))
      record.countedFrom = .second(date(countedFrom.second))
    }
  }
}
