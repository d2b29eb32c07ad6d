import SteadfastQueue

/// Requirements about how claimed tasks end or wait again.
extension PersistenceConformance.Requirement {
  static let ends: [Self] = [
    Self(
      "end.succeed",
      "A task that succeeds is removed, or retained with the date.",
      check: checkSuccess
    ),
    Self(
      "end.retry",
      "A retried task waits with its new date, its number of retries and the error.",
      check: checkRetry
    ),
    Self(
      "end.retry-without-failure",
      "A task that is retried without a failure keeps its last error.",
      check: checkRetryWithoutFailure
    ),
    Self(
      "end.failures",
      "A task keeps its last five failures, the oldest first; a restart forgets them.",
      check: checkKeptFailures
    ),
    Self(
      "end.abandon",
      "A task that is abandoned is removed, or retained with the reason and the date.",
      check: checkAbandonment
    ),
    Self(
      "end.release",
      "A task that is released is as if it had never been claimed.",
      check: checkRelease
    ),
    Self(
      "end.park",
      "A parked task keeps the error and the version that its handler knew, and no claim returns "
        + "it.",
      check: checkParking
    ),
    Self(
      "end.unpark",
      "All parked tasks of one name wait again, and no others.",
      check: checkUnparking
    ),
    Self(
      "end.unpark-below",
      "Unparking below a version affects only the tasks that were parked with a lower version, or "
        + "with none.",
      check: checkUnparkingBelowVersion
    ),
    Self(
      "end.claimed-control",
      "With its lease, a claimed task can be cancelled, paused, restarted and rescheduled.",
      check: checkControlOfClaimedTasks
    ),
  ]

  private static func checkSuccess(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.apply(.succeed(leases[0], at: .second(3.25), retains: false))
    try await store.apply(.succeed(leases[1], at: .second(4.25), retains: true))
    try await store.expectTasks([2])
    let expected = TaskRecord.numbered(2).with { record in
      record.state = .succeeded
      record.finishedDate = .second(4.25)
    }
    try await store.expect(2, is: expected)
    try store.expect(try await store.claim(at: 1e5), [])
  }

  private static func checkRetry(in store: StoreProbe) async throws {
    let new = TaskRecord.numbered(1, priority: 2, key: "k")
    try await store.insert(new)
    let lease = try await store.claimOne()
    try await store.apply(
      .retry(lease, availableDate: .second(9.5), retryCount: 4, failure: .at(5.25, "no röute\n"))
    )
    let expected = new.with { record in
      record.availableDate = .second(9.5)
      record.countedFrom = .second(5.25)
      record.retryCount = 4
      record.isPostponed = true
      record.lastError = "no röute\n"
      record.failedDate = .second(5.25)
      record.failedAttempt = TaskFailure.at(5.25).attempt
    }
    try await store.expect(1, is: expected)
    try store.expect(try await store.claim(at: 9.25), [])
    let claim = try await store.claim(at: 9.5)
    try store.expect(claim, [1])
    try store.expect(claim.tasks[0].record, is: expected.with { $0.state = .running })
  }

  private static func checkRetryWithoutFailure(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let first = try await store.claimOne()
    try await store.apply(
      .retry(first, availableDate: .second(1), retryCount: 1, failure: .at(1, "first"))
    )
    let second = try await store.claimOne(at: 2)
    try await store.apply(
      .retry(second, availableDate: .second(8), retryCount: 1, failure: nil)
    )
    let expected = TaskRecord.numbered(1).with { record in
      record.availableDate = .second(8)
      record.retryCount = 1
      record.isPostponed = true
      record.lastError = "first"
      record.failedDate = .second(1)
      record.failedAttempt = TaskFailure.at(1).attempt
    }
    try await store.expect(1, is: expected)
  }

  private static func checkKeptFailures(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    // The store keeps the first 500 scalars of an earlier failure's text, even if that splits a
    // character.
    let long = String(repeating: "e\u{301}x", count: 400)
    let reasons = ["first", "second", "", long, "fifth", long, "\(long)!"]
    for (index, reason) in reasons.enumerated() {
      let date = Double(2 * index)
      let failure = TaskFailure.at(date + 0.5, reason)
      let lease = try await store.claimOne(at: date)
      if index == 4 {
        try await store.apply(.park(lease, failure: failure))
        try await store.apply(.unpark(name: "A"))
      } else if index == reasons.count - 1 {
        try await store.apply(.abandon(lease, failure: failure, retains: true))
      } else {
        try await store.apply(
          .retry(lease, availableDate: .second(date), retryCount: index + 1, failure: failure)
        )
        let again = try await store.claimOne(at: date)
        try await store.apply(
          .retry(again, availableDate: .second(date), retryCount: index + 1, failure: nil)
        )
      }
    }
    try await store.expect(1, is: recordAfterSevenFailures(longText: long))
    try await store.apply(.restart(.unclaimed(.numbered(1)), availableDate: .second(20)))
    try await store.expect(1, is: .numbered(1, at: 20, from: 20))
  }

  /// Returns the expected record after seven failures, three of which contain the long text.
  private static func recordAfterSevenFailures(longText long: String) -> TaskRecord {
    let cut = String(String.UnicodeScalarView(long.unicodeScalars.prefix(500)))
    let kept = zip([2, 3, 4, 5], ["", cut, "fifth", cut]).map { index, reason in
      TaskFailure.at(Double(2 * index) + 0.5, reason)
    }
    return TaskRecord.numbered(1).with { record in
      record.state = .abandoned
      record.availableDate = .second(10)
      record.retryCount = 6
      record.isPostponed = true
      record.lastError = "\(long)!"
      record.failedDate = .second(12.5)
      record.failedAttempt = TaskFailure.at(12.5).attempt
      record.earlierFailures = kept
      record.finishedDate = .second(12.5)
    }
  }

  private static func checkAbandonment(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.apply(.abandon(leases[0], failure: .at(3), retains: false))
    try await store.apply(.abandon(leases[1], failure: .at(4, "not found"), retains: true))
    try await store.expectTasks([2])
    let expected = TaskRecord.numbered(2).with { record in
      record.state = .abandoned
      record.lastError = "not found"
      record.failedDate = .second(4)
      record.failedAttempt = TaskFailure.at(4).attempt
      record.finishedDate = .second(4)
    }
    try await store.expect(2, is: expected)
    try store.expect(try await store.claim(at: 1e5), [])
  }

  private static func checkRelease(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, priority: 3, at: -7, key: "k"))
    let first = try await store.claimOne()
    try await store.apply(
      .retry(first, availableDate: .second(1), retryCount: 2, failure: .at(0, "before"))
    )
    let before = try await store.task(1)
    try await store.apply(.release(try await store.claimOne(at: 2)))
    try await store.expect(1, is: before)
    try store.expect(try await store.claim(at: 1), [1])
  }

  private static func checkParking(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    try await store.apply(
      .park(try await store.claimOne(), failure: .at(2, "can't be read"), knownVersion: 7)
    )
    let expected = TaskRecord.numbered(1).with { record in
      record.state = .parked
      record.parkedVersion = 7
      record.lastError = "can't be read"
      record.failedDate = .second(2)
      record.failedAttempt = TaskFailure.at(2).attempt
    }
    try await store.expect(1, is: expected)
    let claim = try await store.claim(otherNames: 5, at: 1e5)
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: nil, at: 1e5)
  }

  private static func checkUnparking(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, name: "B"), .numbered(3), .numbered(4))
    let claim = try await store.claim(3, names: ["A": 9, "B": 9])
    try store.expect(claim, [1, 2, 3])
    for task in claim.tasks { try await store.apply(.park(task.lease, failure: .at(2))) }
    try await store.apply(.unpark(name: "unknown"))
    try await store.expectTasks([1, 2, 3], TaskFilter(states: [.parked]))
    try await store.apply(.unpark(name: "A"))
    try await store.expectTasks([2], TaskFilter(states: [.parked]))
    let numbers = try await store.claim(names: ["A": 9, "B": 9]).tasks.map(\.record.id.number)
    try store.expect("the claimed tasks, in any order", numbers.sorted(), [1, 3, 4])
  }

  private static func checkUnparkingBelowVersion(in store: StoreProbe) async throws {
    let versions: [Int?] = [nil, 1, 2, 3, .max, -1]
    for number in 1...7 { try await store.insert(.numbered(number, name: number < 7 ? "A" : "B")) }
    for task in try await store.claim(names: ["A": 9, "B": 9]).tasks {
      let number = task.record.id.number
      let version = number < 7 ? versions[number - 1] : nil
      try await store.apply(.park(task.lease, failure: .at(2), knownVersion: version))
    }
    try await store.apply(.unpark(name: "A", below: 2))
    try await store.expectTasks([3, 4, 5, 7], TaskFilter(states: [.parked]))
    try await store.apply(.unpark(name: "A", below: .max))
    try await store.expectTasks([5, 7], TaskFilter(states: [.parked]))
    try await store.apply(.unpark(name: "A"))
    try await store.expectTasks([7], TaskFilter(states: [.parked]))
    // Only the last version counts.
    let lease = try await store.claim(1).tasks[0].lease
    try await store.apply(.park(lease, failure: .at(3), knownVersion: 5))
    try await store.apply(.unpark(name: "A", below: 5))
    try await store.expectTasks([lease.id.number, 7], TaskFilter(states: [.parked]))
    try await store.apply(.unpark(name: "A", below: 6))
    try await store.expectTasks([7], TaskFilter(states: [.parked]))
  }

  private static func checkControlOfClaimedTasks(in store: StoreProbe) async throws {
    for number in 1...5 { try await store.insert(.numbered(number)) }
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 5)
    try await store.apply(.cancel(.claimed(leases[0]), at: .second(5), retains: false))
    try await store.apply(.cancel(.claimed(leases[1]), at: .second(5), retains: true))
    try await store.apply(.pause(.claimed(leases[2])))
    try await store.apply(.restart(.claimed(leases[3]), availableDate: .second(7)))
    try await store.apply(
      .reschedule(.claimed(leases[4]), availableDate: .second(8), countedFrom: .second(6))
    )
    try await store.expectTasks([2, 3, 4, 5])
    let cancelled = TaskRecord.numbered(2).with { record in
      record.state = .cancelled
      record.finishedDate = .second(5)
    }
    try await store.expect(2, is: cancelled)
    try await store.expect(3, is: .numbered(3).with { $0.state = .paused })
    try await store.expect(4, is: .numbered(4, at: 7, from: 7))
    try await store.expect(5, is: .numbered(5, at: 8, from: 6))
    try store.expect(try await store.claim(at: 10), [4, 5])
  }
}
