import SteadfastQueue
import SystemFoundation

/// Requirements about the tasks that a claim returns, and its date for the next claim.
extension PersistenceConformance.Requirement {
  static let claims: [Self] = [
    Self("claim.date", "A claim returns a task from its available date on.", check: checkClaimDate),
    Self(
      "claim.earlier-date",
      "A claim whose date is before that of the previous claim returns only tasks that are "
        + "available by its own date.",
      check: checkClaimWithEarlierDate
    ),
    Self(
      "claim.limit",
      "A claim returns at most as many tasks as its limit.",
      check: checkClaimLimit
    ),
    Self(
      "claim.names",
      "A claim returns at most as many tasks with a name as the claim's limit for that name.",
      check: checkLimitsOfNames
    ),
    Self(
      "claim.other-names",
      "Each unlisted name has the limit for other names; each listed name has its own.",
      check: checkLimitOfOtherNames
    ),
    Self(
      "claim.unknown-names",
      "Tasks whose names no claim accepts stay in the store, and don't delay other tasks.",
      check: checkUnacceptedNames
    ),
    Self(
      "claim.versions",
      "A claim returns no task whose payload has a greater version than the claim has for the "
        + "task's name.",
      check: checkPayloadVersions
    ),
    Self(
      "claim.texts",
      "A claim may list a name or a condition that contains a NUL. No task has it, and the claim "
        + "returns the tasks with the other names and conditions.",
      check: checkNULInClaims
    ),
    Self(
      "claim.once",
      "A claimed task is running, and no other claim returns it. Each claim of a task has a new "
        + "lease.",
      check: checkTaskIsClaimedOnce
    ),
    Self(
      "claim.next-date",
      "A claim's next date is not later than the date at which the next task becomes available. "
        + "If the claim finds nothing, its next date is after now.",
      check: checkNextDate
    ),
    Self(
      "claim.next-date-now",
      "If a claim's limit left available tasks unclaimed, its next date is not later than now.",
      check: checkNextDateIsNow
    ),
    Self(
      "claim.next-date-room",
      "If a claim finds nothing, its next date is after now, even if there are available tasks "
        + "that its names or their limits exclude.",
      check: checkNextDateWithoutCapacity
    ),
  ]

  private static func checkClaimDate(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, at: 60), .numbered(2, at: 60.5), .numbered(3, at: 1e8))
    try store.expect(try await store.claim(at: 59.75), [])
    try store.expect(try await store.claim(at: 60), [1])
    try store.expect(try await store.claim(at: 61), [2])
  }

  private static func checkClaimWithEarlierDate(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1),
      .numbered(2, priority: 1, at: 60),
      .numbered(3, priority: 2, at: 90),
      .numbered(4, at: 90),
      .numbered(5, at: 95)
    )
    try store.expect(try await store.claim(1, at: 90), [3])
    let claim = try await store.claim(at: 50)
    try store.expect(claim, [1])
    try store.expect(try await store.claim(1, at: 60), [2])
    // A suspended task waits for its date, even if an earlier claim had a later date.
    try await store.apply(.suspend(claim.tasks[0].lease, until: .second(80), awaiting: []))
    try store.expect(try await store.claim(at: 70), [])
    try store.expect(try await store.claim(at: 92), [1, 4])
  }

  private static func checkClaimLimit(in store: StoreProbe) async throws {
    for number in 1...5 { try await store.insert(.numbered(number)) }
    try store.expect(try await store.claim(0), [])
    try store.expect(try await store.claim(1), [1])
    try store.expect(try await store.claim(3), [2, 3, 4])
    try store.expect(try await store.claim(3), [5])
    try store.expect(try await store.claim(3), [])
  }

  private static func checkLimitsOfNames(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number)) }
    for number in 5...6 { try await store.insert(.numbered(number, name: "B", priority: -1)) }
    try await store.insert(.numbered(7, name: "a"))
    let first = try await store.claim(names: ["A": 2, "B": 1])
    try store.expect(first, [1, 2, 5])
    try store.expect(try await store.claim(names: ["A": 0, "B": 5]), [6])
    try store.expect(try await store.claim(names: [:]), [])
    try store.expect(try await store.claim(names: ["A": .max]), [3, 4])
  }

  private static func checkLimitOfOtherNames(in store: StoreProbe) async throws {
    for number in 1...3 { try await store.insert(.numbered(number)) }
    for number in 4...6 { try await store.insert(.numbered(number, name: "B")) }
    for number in 7...9 { try await store.insert(.numbered(number, name: "C")) }
    let first = try await store.claim(names: ["A": 0, "B": 1], otherNames: 2)
    try store.expect(first, [4, 7, 8])
    let second = try await store.claim(3, names: [:], otherNames: 2)
    try store.expect(second, [1, 2, 5])
  }

  private static func checkUnacceptedNames(in store: StoreProbe) async throws {
    for number in 1...3 {
      try await store.insert(.numbered(number, name: "unknown", priority: 9))
    }
    try await store.insert(.numbered(4))
    try store.expect(try await store.claim(2), [4])
    try await store.expectTasks([1, 2, 3], TaskFilter(states: [.waiting]))
  }

  private static func checkPayloadVersions(in store: StoreProbe) async throws {
    // Tasks with newer payloads come first. A store may read the tasks in another way after many.
    _ = try await store.apply(
      (1...150).map { number in
        .insert(.numbered(number, priority: 1, version: 3), onDuplicate: .keep)
      }
    )
    try await store.insert(
      .numbered(201),
      .numbered(202, version: 2),
      .numbered(203, name: "B", version: 9),
      .numbered(204, name: "C", version: 9),
      .numbered(205, name: "C", version: -1)
    )
    func expectClaim(
      of numbers: [Int],
      _ limit: Int = 1000,
      names: [String: Int],
      otherNames: Int = 0,
      versions: [String: Int]
    ) async throws {
      let claim = try await store.claim(
        limit,
        names: names,
        otherNames: otherNames,
        versions: versions,
        at: 5
      )
      try store.expect(claim, numbers)
      if numbers.isEmpty { try store.expectNextDate(claim, by: nil, at: 5) }
      _ = try await store.apply(claim.tasks.reversed().map { .release($0.lease) })
    }
    let many = ["A": 1000, "B": 1000]
    try await expectClaim(of: [201, 202, 203], names: many, versions: ["A": 2])
    try await expectClaim(of: [201, 202], names: many, versions: ["A": 2, "B": 8, "D": 1])
    try await expectClaim(of: [201], 1, names: many, versions: ["A": 2])
    try await expectClaim(of: [201], names: ["A": 1, "B": 1], versions: ["A": 2, "B": 8])
    try await expectClaim(of: [], names: many, versions: ["A": 0, "B": 0])
    try await expectClaim(of: [], names: ["A": 2], versions: ["A": 0])
    try await expectClaim(
      of: [201, 203, 205],
      names: [:],
      otherNames: 1000,
      versions: ["A": 1, "B": 9, "C": 8]
    )
    // Another payload may have another version.
    func payload(version: Int) -> TaskUpdate {
      TaskUpdate(payload: StoredPayload([1], format: .binary, version: version))
    }
    try await store.apply(.update(.numbered(201), payload(version: 4)))
    try await store.apply(.update(.numbered(150), payload(version: 1)))
    try await expectClaim(of: [150, 202], names: many, versions: ["A": 2, "B": 8])
    try await expectClaim(of: [1], 1, names: many, versions: [:])
  }

  private static func checkNULInClaims(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, name: "a"), .numbered(3, requires: ["c"]))
    try await store.insert(.numbered(4, at: 60))
    let names = ["A": 1000, "a\0b": 0, "\0": 1]
    let claim = try await store.claim(names: names, otherNames: 1, holding: ["c\0", "\0"])
    try store.expect(claim, [1, 2])
    let second = try await store.claim(names: names, otherNames: 1, holding: ["c\0", "\0"])
    try store.expect(second, [])
    try store.expectNextDate(second, by: 60, at: 0)
    try store.expect(try await store.claim(names: names, holding: ["c\0", "c"]), [3])
  }

  private static func checkTaskIsClaimedOnce(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let claim = try await store.claim()
    try store.expect(claim, [1, 2])
    for task in claim.tasks {
      let number = task.lease.id.number
      try store.expect("the lease's task", task.record.id.number, number)
      try store.expect(task.record, is: .numbered(number).with { $0.state = .running })
      try await store.expect(number, is: .numbered(number).with { $0.state = .running })
    }
    try store.expect(try await store.claim(at: 50), [])
    try await store.apply(.release(claim.tasks[0].lease))
    let lease = try await store.claimOne()
    try store.expect("whether the lease is new", lease != claim.tasks[0].lease, true)
  }

  private static func checkNextDate(in store: StoreProbe) async throws {
    try store.expectNextDate(try await store.claim(), by: nil, at: 0)
    try await store.insert(.numbered(1, at: 90), .numbered(2, at: 60.5), .numbered(3, at: 70))
    try store.expectNextDate(try await store.claim(at: 1), by: 60.5, at: 1)
    try store.expectNextDate(try await store.claim(at: 60.5), by: 70, at: 60.5)
    try await store.apply(.cancel(.unclaimed(.numbered(3)), at: .second(61), retains: true))
    try store.expectNextDate(try await store.claim(at: 61), by: 90, at: 61)
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try store.expectNextDate(try await store.claim(at: 62), by: nil, at: 62)
  }

  private static func checkNextDateIsNow(in store: StoreProbe) async throws {
    for number in 1...3 { try await store.insert(.numbered(number)) }
    try await store.insert(.numbered(4, at: 60))
    for limit in [0, 1, 1] {
      let claim = try await store.claim(limit, at: 5)
      let isDue = claim.nextDate.map { $0 <= .second(5) } ?? false
      try store.expect("whether the next date has come", isDue, true)
    }
    try store.expectNextDate(try await store.claim(2, at: 5), by: 60, at: 5)
  }

  private static func checkNextDateWithoutCapacity(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3, name: "unknown"))
    try await store.insert(.numbered(4, at: 60))
    let claim = try await store.claim(names: ["A": 1], at: 5)
    try store.expect(claim, [1])
    try store.expectNextDate(claim, by: 60, at: 5)
    let second = try await store.claim(names: ["A": 0], at: 5)
    try store.expect(second, [])
    try store.expectNextDate(second, by: 60, at: 5)
  }
}
