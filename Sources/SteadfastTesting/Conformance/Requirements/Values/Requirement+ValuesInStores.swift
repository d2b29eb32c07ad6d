import SteadfastQueue

/// Requirements about values of stores that are closed, shared, and asked by many.
extension PersistenceConformance.Requirement {
  static let valuesInStores: [Self] = [
    Self(
      "life.values",
      "A store that was destroyed has no values, and throws; one that was closed throws.",
      .reopened,
      check: life
    ),
    Self(
      "reopen.values",
      "Values are there when the store is opened again, and those that were removed are not.",
      .reopened,
      check: reopened
    ),
    Self(
      "sharing.values",
      "Of two stores that are open at once, each has the values that the other one sets.",
      .shared,
      check: shared
    ),
    Self(
      "concurrency.values",
      "Of many that compare and set a value at the same time, one does so, and none is lost.",
      check: concurrent
    ),
  ]

  private static func life(_ store: StoreProbe) async throws {
    try await store.apply(setValue("a", nil, [1]))
    store.note("close")
    try await store.store.close()
    try await store.expectError("value") { _ = try await store.value("a") }
    let second = try await store.successor()
    try await second.expectValue("a", [1])
    second.note("destroy, and open again")
    try await second.store.destroy()
    try await second.expectError("value") { _ = try await second.value("a") }
    let third = try await second.successor()
    try await third.expectValue("a", nil)
    try await third.apply(setValue("a", nil, [2]))
  }

  private static func reopened(_ store: StoreProbe) async throws {
    for name in valueExamples.keys.sorted() {
      try await store.apply(setValue(name, nil, valueExamples[name]))
    }
    try await store.apply([setValue("relaxed", nil, [4])], durability: .relaxed)
    try await store.apply(setValue("text", valueExamples["text"], nil))
    try await store.apply(setValue("control", valueExamples["control"], [5]))
    try await store.apply(setValue("control", [6], [7]), .valueDiffers)
    var next = store
    for _ in 1...2 {
      next = try await next.reopened()
      for name in valueExamples.keys.sorted() where name != "text" && name != "control" {
        try await next.expectValue(name, valueExamples[name])
      }
      try await next.expectValue("relaxed", [4])
      try await next.expectValue("text", nil)
      try await next.expectValue("control", [5])
    }
    try await next.apply(setValue("control", valueExamples["control"], [8]), .valueDiffers)
    try await next.apply(setValue("control", [5], [8]))
    try await next.apply(setValue("text", nil, [9]))
  }

  private static func shared(_ store: StoreProbe) async throws {
    try await store.apply(setValue("a", nil, [1]))
    let other = try await store.another()
    try await other.expectValue("a", [1])
    try await other.apply(setValue("a", [1], [2]))
    try await store.expectValue("a", [2])
    try await store.apply(setValue("a", [1], [3]), .valueDiffers)
    try await store.apply(setValue("a", [2], nil))
    try await other.expectValue("a", nil)
    try await other.apply(setValue("a", [2], [4]), .valueDiffers)
  }

  private static func concurrent(_ store: StoreProbe) async throws {
    for round in 0..<10 {
      store.note("\(callers) callers set the value 'round \(round)', which is not there")
      let outcomes = try await atOnce { caller in
        let bytes = [UInt8(caller)]
        let change = setValue("round \(round)", nil, bytes)
        return (bytes, try await store.store.apply([change], durability: .relaxed)[0])
      }
      let winners = outcomes.filter { $0.1 == .done }.map(\.0)
      try store.expect("the number of outcomes that are done", winners.count, 1)
      let others = outcomes.count { $0.1 == .valueDiffers }
      try store.expect("the outcomes that say that the value differs", others, callers - 1)
      try await store.expectValue("round \(round)", winners[0])
    }
    store.note("\(callers) callers add 1 to the value 'sum' 10 times each, trying until it is done")
    let sums = try await atOnce { _ in
      for _ in 0..<10 { try await addOne(to: "sum", store) }
      return true
    }
    try store.expect("the callers that return", sums.count, callers)
    try await store.expectValue("sum", [UInt8(callers * 10)])
  }

  /// Adds 1 to the number in a value.
  private static func addOne(to name: String, _ store: StoreProbe) async throws {
    // Each time that it fails, another caller has added 1, or is just adding it.
    for _ in 0..<10_000 {
      let old = try await store.store.value(named: name)
      let new = [(old?.first ?? 0) &+ 1]
      let outcome = try await store.store.apply([setValue(name, old, new)], durability: .relaxed)
      if outcome == [.done] { return }
      try store.expect("the outcome", outcome.map(\.step), [ChangeOutcome.valueDiffers.step])
    }
    throw ConformanceMismatch(
      expected: "a value can be set that was just read",
      found: "it was another one 10,000 times"
    )
  }
}
