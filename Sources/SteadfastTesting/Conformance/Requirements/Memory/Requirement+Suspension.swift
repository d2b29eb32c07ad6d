import SteadfastQueue
import SystemFoundation

/// Requirements about suspended tasks.
extension PersistenceConformance.Requirement {
  static let suspension: [Self] = [
    Self(
      "suspension.suspended",
      "A suspended task has the chosen date, is no longer claimed, and keeps its retries and its "
        + "failures. It has no interruptions and is not postponed.",
      check: checkFieldsOfSuspendedTask
    ),
    Self(
      "suspension.due",
      "A suspended task is claimed at its date, in order with the waiting tasks.",
      check: checkClaimOfSuspendedTask
    ),
    Self(
      "suspension.endless",
      "A task that is suspended until the distant future or later is never claimed, and its date is "
        + "never the next date of a claim.",
      check: checkEndlessSuspension
    ),
    Self(
      "suspension.awaited",
      "If a task is suspended after the completion that it awaits, it wakes at once.",
      check: checkSuspensionAfterCompletion
    ),
    Self(
      "suspension.controlled",
      "A suspended task can be cancelled, restarted, updated and rescheduled. It can also be paused, "
        + "which wakes it first.",
      check: checkControlOfSuspendedTask
    ),
    Self(
      "suspension.rebase",
      "When the clock goes back, suspended tasks whose dates were counted from a later date wake. "
        + "The others keep their dates.",
      .oneClock,
      check: checkSuspendedTasksAfterRebase
    ),
  ]

  private static func checkFieldsOfSuspendedTask(in store: StoreProbe) async throws {
    let record = TaskRecord.numbered(1, priority: 2)
    try await store.insert(record)
    let first = try await store.claimOne(leaseTime: StoreProbe.leaseTime)
    try await store.apply(
      .retry(first, availableDate: .second(0), retryCount: 3, failure: .at(1))
    )
    var next = store
    if store.canInterruptTasks {
      _ = try await store.claimOne(leaseTime: StoreProbe.leaseTime)
      next = try await store.interruptTasks()
    }
    let claim = try await next.claim(at: 20)
    let interruptions = store.canInterruptTasks ? 1 : 0
    try next.expect("interruptions", claim.tasks.map(\.record.interruptionCount), [interruptions])
    let lease = try claim.tasks.first.required().lease
    try await next.apply(.suspend(lease, until: 60))
    let expected = record.with { record in
      record.note(.at(1))
      record.retryCount = 3
      record.state = .suspended
      record.availableDate = .second(60)
    }
    try await next.expect(1, is: expected)
    try await next.expectTasks([1], TaskFilter(states: [.suspended]))
    try await next.expectTasks([1], .unfinished)
    try await next.expectTasks([], .retrying)
    try await next.expectTasks([], TaskFilter(states: [.waiting, .running]))
    let dates = TaskFilter(availableDates: .second(60)..<(.second(61)))
    try next.expect("the count", try await next.count(dates), 1)
    for change in changes(with: lease) { try await next.apply(change, .stale) }
    try await next.expect(1, is: expected)
    if store.trial.reopens { next = try await next.reopen() }
    try await expectWaking(of: expected, in: next)
  }

  /// Expects that a suspended task is claimed at its date, and that it waits after its release.
  private static func expectWaking(of task: TaskRecord, in store: StoreProbe) async throws {
    try await store.expect(1, is: task)
    try store.expect(try await store.claim(at: 59), [])
    let claim = try await store.claim(at: 60)
    try store.expect(claim, [1])
    try store.expect(claim.tasks[0].record, is: task.inState(.running))
    try await store.apply(.release(claim.tasks[0].lease))
    try await store.expect(1, is: task.inState(.waiting))
  }

  private static func checkClaimOfSuspendedTask(in store: StoreProbe) async throws {
    for number in 1...3 { try await store.insert(.numbered(number)) }
    let leases = try await store.claimExactly(1, 2, 3)
    try await store.insert(
      .numbered(4, at: 60),
      .numbered(5, priority: 1, at: 70),
      .numbered(6, at: 59)
    )
    try await store.apply(.suspend(leases[2], until: 60))
    try await store.apply(.suspend(leases[0], until: 60))
    try await store.apply(.suspend(leases[1], until: 61))
    try await store.insert(.numbered(7, at: 60))
    let claim = try await store.claim(1, at: 59)
    try store.expect(claim, [6])
    try await store.apply(.succeed(claim.tasks[0].lease, at: .second(59), retains: false))
    let none = try await store.claim(at: 59)
    try store.expect(none, [])
    try store.expectNextDate(none, by: 60, at: 59)
    // Among tasks with the same priority and date, a suspended task comes behind those that were
    // already waiting when it was suspended, and before those that were added later.
    try store.expect(try await store.claim(at: 60), [4, 3, 1, 7])
    let late = try await store.claim(names: ["B": 9], at: 60)
    try store.expect(late, [])
    try store.expect(try await store.claim(1, at: 61), [2])
    try await store.insert(.numbered(8, at: 61))
    let last = try await store.claimExactly(5, 8, at: 70)
    try await store.apply(.suspend(last[0], until: 90))
    let rest = try await store.claim(at: 80)
    try store.expect(rest, [])
    try store.expectNextDate(rest, by: 90, at: 80)
  }

  private static func checkEndlessSuspension(in store: StoreProbe) async throws {
    for number in 1...3 { try await store.insert(.numbered(number)) }
    let leases = try await store.claimExactly(1, 2, 3)
    try await store.apply(.suspend(leases[0]))
    try await store.apply(.suspend(leases[1], until: TaskRecord.lastDate, awaiting: []))
    let last = Date.distantFuture - 1
    try await store.apply(.suspend(leases[2], until: last, awaiting: []))
    var claim = try await store.claim()
    try store.expect(claim, [])
    try store.expect("the claim's next date", claim.nextDate, last)
    try await store.expect(
      1,
      is: TaskRecord.numbered(1).with { record in
        record.state = .suspended
        record.availableDate = .distantFuture
      }
    )
    try await store.apply(.cancel(3, retains: false))
    claim = try await store.claim()
    try store.expect("the claim's next date", claim.nextDate, nil)
    for now in [Date.distantFuture, TaskRecord.lastDate] {
      claim = try await store.claim(at: now.second)
      try store.expect(claim, [])
      try store.expect("the claim's next date", claim.nextDate, nil)
    }
  }

  private static func checkSuspensionAfterCompletion(in store: StoreProbe) async throws {
    let cases: [(names: [String], wakes: Bool)] = [
      (["come"], true), (["open", "come"], true), (["other", "come", "come"], true), ([], false),
      (["open"], false), (["other"], false), (["Come", "come "], false), (["e\u{301}"], false),
      (["\u{e9}", "open"], true),
    ]
    for (number, (names, wakes)) in cases.enumerated() {
      let fresh = try await store.openEmptyStore(suffix: "\(number)")
      let record = TaskRecord.numbered(1, created: -5)
      let lease = try await fresh.startTask(
        record,
        remembering: [:],
        open: "come",
        "open",
        "\u{e9}"
      )
      try await fresh.apply(.complete(1, "come", [1]))
      try await fresh.apply(.complete(1, "\u{e9}", [2]))
      try await fresh.insert(.numbered(2, at: -5))
      try await fresh.apply(.suspend(lease, until: .second(60), awaiting: names))
      let expected = record.with { record in
        record.state = wakes ? .waiting : .suspended
        record.availableDate = .second(wakes ? -5 : 60)
        record.memorySize = 12
      }
      try await fresh.expect(1, is: expected)
      try await fresh.expectMemory(1, ["come": [1], "open": [], "\u{e9}": [2]])
      try fresh.expect(try await fresh.claim(), wakes ? [2, 1] : [2])
      if wakes { continue }
      // A task that awaits a completion that has already come wakes at once.
      let again = try await fresh.claimOne(at: 60)
      try await fresh.apply(.suspend(again, until: nil, "come"))
      try await fresh.expect(1, is: expected.inState(.waiting, at: -5))
    }
  }

  private static func checkControlOfSuspendedTask(in store: StoreProbe) async throws {
    let target = TaskTarget.unclaimed(.numbered(1))
    let update = TaskUpdate(priority: .init(rawValue: 4), tags: ["t"])
    let woken = TaskRecord.numbered(1, created: -5)
    let suspended = woken.inState(.suspended, at: 60)
    let cases: [(change: TaskChange, leadsTo: TaskRecord)] = [
      (.cancel(1), suspended.inState(.cancelled).with { $0.finishedDate = .second(1) }),
      (.pause(target), woken.inState(.paused, at: -5)),
      (
        .restart(target, availableDate: .second(20)),
        woken.inState(.waiting, at: 20).with { $0.countedFrom = .second(20) }
      ),
      (.reschedule(target, availableDate: .second(20)), woken.inState(.waiting, at: 20)),
      (.update(.numbered(1), update), suspended.with { $0.apply(update) }),
      (.unpark(name: "A"), suspended), (.rebase(.second(1)), suspended),
    ]
    for (number, (change, expected)) in cases.enumerated() {
      if case .broad(.rebase) = change, !store.store.hasOneClock { continue }
      let fresh = try await store.openEmptyStore(suffix: "\(number)")
      try await fresh.insert(woken)
      try await fresh.apply(.suspend(try await fresh.claimOne(), until: 60))
      for stale: TaskChange in [.resume(.numbered(1)), .remove(.numbered(1))] {
        try await fresh.apply(stale, .stale)
      }
      try await fresh.expect(1, is: suspended)
      try await fresh.apply(change)
      try await fresh.expect(1, is: expected)
      let isSuspended = expected.state == .suspended
      try fresh.expect(try await fresh.claim(at: 19), [])
      try fresh.expect(try await fresh.claim(at: 59), expected.state == .waiting ? [1] : [])
      try fresh.expect(try await fresh.claim(at: 60), isSuspended ? [1] : [])
      guard change.move?.kind == .pause else { continue }
      try await fresh.apply(.resume(.numbered(1)))
      try fresh.expect(try await fresh.claim(), [1])
    }
    // A cancelled task that is not retained is removed.
    try await store.insert(woken)
    try await store.apply(.suspend(try await store.claimOne()))
    try await store.apply(.cancel(1, retains: false))
    try await store.expectTasks([])
  }

  private static func checkSuspendedTasksAfterRebase(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number, created: 50)) }
    let leases = try await store.claimExactly(1, 2, 3, 4)
    try await store.apply(
      .retry(leases[0], availableDate: .second(1), retryCount: 1, failure: .at(100))
    )
    let again = try await store.claimExactly(1, at: 1)[0]
    // The date of task 1 is counted from a later date, that of task 4 from an earlier date.
    let ends: [(lease: Lease, until: Double?, from: Double?)] = [
      (again, 160, 100), (leases[1], 40, nil), (leases[2], nil, nil), (leases[3], 120, 5),
    ]
    for end in ends {
      try await store.apply(
        .suspend(
          end.lease,
          until: end.until.map(Date.second) ?? .distantFuture,
          awaiting: [],
          countedFrom: end.from.map(Date.second)
        )
      )
    }
    let before = try await store.tasks()
    let woken = TaskRecord.numbered(1, at: 10, created: 10).with { record in
      record.retryCount = 1
      record.note(
        TaskFailure(reason: "no route", date: .second(10), attempt: TaskFailure.at(100).attempt)
      )
    }
    for _ in 0..<2 {
      try await store.apply(.rebase(.second(10)))
      try await store.expect(1, is: woken)
      for record in before.dropFirst() {
        try await store.expect(record.id.number, is: record.withCreatedDate(.second(10)))
      }
    }
    try store.expect(try await store.claim(at: 39), [1])
    try store.expect(try await store.claim(at: 40), [2])
    try store.expect(try await store.claim(at: 120), [4])
  }
}

/// Requirements about how a suspended task affects tasks with the same keys, and dependent tasks.
extension PersistenceConformance.Requirement {
  static let suspensionAndOthers: [Self] = [
    Self(
      "suspension.order",
      "A suspended task keeps its position among the tasks with its order key: later tasks wait.",
      check: checkOrderKeyOfSuspendedTask
    ),
    Self(
      "suspension.unique",
      "A suspended task holds its unique key. If it remembers nothing, a new task can replace it, "
        + "which wakes it.",
      check: checkUniqueKeyOfSuspendedTask
    ),
    Self(
      "suspension.dependencies",
      "Tasks wait for a suspended dependency. A suspended task waits if its dependency is restarted, "
        + "and is cancelled by a cascade.",
      check: checkDependenciesOfSuspendedTask
    ),
  ]

  private static func checkOrderKeyOfSuspendedTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, order: "o"), .numbered(2, order: "o"), .numbered(3))
    let leases = try await store.claimExactly(1, 3)
    try await store.remember(leases[0], named: "open", value: [])
    try await store.apply(.suspend(leases[0], until: 60))
    try store.expect(try await store.claim(at: 59), [])
    let again = try await store.claimExactly(1, at: 60)[0]
    try store.expect(try await store.claim(at: 61), [])
    try await store.apply(.suspend(again, until: nil, "open"))
    let claim = try await store.claim(at: 100)
    try store.expect(claim, [])
    try await store.apply(.complete(1, "open", [1]))
    try await store.perform(1, at: 100)
    try store.expect(try await store.claim(at: 100), [2])
  }

  private static func checkUniqueKeyOfSuspendedTask(in store: StoreProbe) async throws {
    let first = TaskRecord.numbered(1, key: "k", created: -5)
    try await store.insert(first)
    try await store.apply(.suspend(try await store.claimOne(), until: 60))
    let suspended = first.inState(.suspended, at: 60)
    let twin = TaskRecord.numbered(2, key: "k", payload: 22)
    for policy: UniquePolicy in [.keep, .join, .reject] {
      try await store.apply(.insert(twin, onDuplicate: policy), .duplicate(of: .numbered(1)))
    }
    try await store.expect(1, is: suspended)
    try await store.insert(.numbered(3, at: -5))
    try await store.apply(.insert(twin, onDuplicate: .replace), .replaced(.numbered(1)))
    try await store.expect(
      1,
      is: first.with { $0.apply(TaskUpdate(payload: twin.payload)) }
        .inState(.waiting, at: -5)
    )
    // The replaced task goes behind the waiting tasks with the same priority and date.
    let leases = try await store.claimExactly(3, 1)
    try await store.apply(.suspend(leases[1], until: 60))
    let later = TaskRecord.numbered(4, at: 30, key: "k")
    try await store.apply(.insert(later, onDuplicate: .replace), .replaced(.numbered(1)))
    try store.expect(try await store.claim(at: 29), [])
    let last = try await store.claimExactly(1, at: 30)[0]
    // The next task waits behind the running task, even while the running task is suspended.
    try await store.insert(.numbered(5, key: "k"))
    try await store.apply(.suspend(last, until: 60))
    try store.expect(try await store.claim(at: 59), [])
    try await store.perform(1, at: 60)
    try store.expect(try await store.claim(at: 60), [5])
  }

  private static func checkDependenciesOfSuspendedTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), TaskRecord.numbered(2).after(1))
    let first = try await store.claimExactly(1)[0]
    try await store.apply(.suspend(first, until: 60))
    try store.expect(try await store.claim(), [])
    let again = try await store.claimExactly(1, at: 60)[0]
    try await store.apply(.succeed(again, at: .second(60), retains: true), .cascading())
    // Task 2 is suspended when its dependency, task 1, is restarted.
    try await store.apply(.suspend(try await store.claimExactly(2, at: 60)[0], until: 70))
    try await store.apply(.restart(1, at: 80), .cascading())
    let claim = try await store.claim(at: 70)
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: 80, at: 70)
    let last = try await store.claimExactly(1, at: 80)[0]
    try await store.apply(.abandon(last, failure: .at(81), retains: true), .cascading(to: 2))
    try await store.expect(
      2,
      is: TaskRecord.numbered(2).after(1).inState(.suspended, at: 70)
        .withFailures([1: .abandoned]).cancelled(at: 81, because: 1)
    )
  }
}
