import SteadfastQueue

/// Requirements about tasks that wait until their conditions are met.
extension PersistenceConformance.Requirement {
  static let conditions: [Self] = [
    Self(
      "conditions.all",
      "A claim returns a task only if all of its conditions are met.",
      check: checkClaimNeedsAllConditions
    ),
    Self(
      "conditions.name",
      "Tasks with conditions count against the limits of their names, and are returned in order "
        + "with the others.",
      check: checkNameLimitsWithConditions
    ),
    Self(
      "conditions.replaced",
      "A task that is replaced has the conditions of its replacement.",
      check: checkConditionsOfReplacedTask
    ),
  ]

  private static func checkClaimNeedsAllConditions(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1, requires: ["network", "charging"]),
      .numbered(2, requires: ["network"]),
      .numbered(3),
      .numbered(4, at: 50, requires: ["Network"])
    )
    let claim = try await store.claim(holding: [])
    try store.expect(claim, [3])
    let second = try await store.claim(holding: ["charging", "other"])
    try store.expect(second, [])
    try store.expectNextDate(second, by: 50, at: 0)
    try store.expect(try await store.claim(holding: ["network"]), [2])
    try store.expect(try await store.claim(at: 50, holding: ["network"]), [])
    let both: Set<TaskCondition> = ["network", "charging", "other"]
    try store.expect(try await store.claim(at: 50, holding: both), [1])
    try store.expect(try await store.claim(at: 50, holding: ["Network"]), [4])
  }

  private static func checkNameLimitsWithConditions(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1, requires: ["a"]),
      .numbered(2),
      .numbered(3, requires: ["b"]),
      .numbered(4, requires: ["a"]),
      .numbered(5, name: "B", requires: ["a"]),
      .numbered(6)
    )
    let held: Set<TaskCondition> = ["a", "b"]
    try store.expect(
      try await store.claim(names: ["A": 3, "B": 1], holding: held),
      [1, 2, 3, 5]
    )
    try store.expect(try await store.claim(1, names: ["A": 3], holding: []), [6])
    // A task is unparked even if its conditions are not met.
    try await store.expectTasks([4], TaskFilter(states: [.waiting]))
    let four = try await store.claim(holding: ["a"]).tasks.first.required().lease
    try await store.apply(.park(four, failure: .at(1)))
    try await store.apply(.unpark(name: "A"))
    try store.expect(try await store.claim(holding: []), [])
    try store.expect(try await store.claim(holding: ["a"]), [4])
  }

  private static func checkConditionsOfReplacedTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k", requires: ["a"]))
    try await store.apply(
      .insert(.numbered(2, key: "k", order: "o", requires: ["b"]), onDuplicate: .replace),
      .replaced(.numbered(1))
    )
    try await store.expect(1, is: .numbered(1, key: "k", payload: 2, requires: ["b"]))
    try store.expect(try await store.claim(holding: ["a"]), [])
    try store.expect(try await store.claim(holding: ["b"]), [1])
  }
}
