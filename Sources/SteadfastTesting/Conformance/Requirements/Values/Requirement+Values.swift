import SteadfastQueue

/// Requirements about a store's named values.
extension PersistenceConformance.Requirement {
  static let values: [Self] = [
    Self(
      "values.kept",
      "A value comes back byte for byte until it is set or removed. A value may have no bytes.",
      check: checkStoredValues
    ),
    Self(
      "values.names",
      "Two names of values are the same only if their UTF-8 bytes are equal.",
      check: checkNamesOfValues
    ),
    Self(
      "values.prefix",
      "The values whose names begin with a prefix come back whole, in the order of their names. "
        + "Names and prefix are compared by their UTF-8 bytes.",
      check: checkPrefixes
    ),
    Self(
      "values.compared",
      "A value is set only if its current bytes are those that the change expects.",
      check: checkValuesAreCompared
    ),
    Self(
      "values.guard",
      "If a value differs, nothing of its batch is stored, and each outcome is `valueDiffers`.",
      check: checkDifferingValueRefusesBatch
    ),
    Self(
      "values.refused",
      "If an insertion refuses its batch, no value of the batch is set.",
      check: checkValuesOfRefusedBatch
    ),
    Self(
      "values.apart",
      "Changes to many tasks don't affect values, and values are never tasks.",
      check: checkValuesAreSeparateFromTasks
    ),
    Self(
      "form.values",
      "A value's name is refused if it is empty, longer than 1,024 bytes, or contains a NUL. A "
        + "value of more than 65,536 bytes is refused, too.",
      check: checkInvalidValues
    ),
  ]

  static func valueChange(
    _ name: String,
    from old: [UInt8]?,
    to new: [UInt8]?
  ) -> TaskChange {
    .setValue(named: name, from: old, to: new)
  }

  private static let longName = String(repeating: "n", count: 1_023)

  /// Values by their names; some have the maximum length, and together they have every byte.
  static let valueExamples: [String: [UInt8]] = [
    "bytes": Array(0...255), "empty": [], "text": Array("é\"\\ 🎈".utf8),
    "control": [0, 10, 31, 127], "quotes": Array(repeating: 34, count: 65_536),
    "large": (0..<65_536).map { UInt8(truncatingIfNeeded: $0 &* 251) },
    "naïve \"name\" \\ 任務 🎈'; --\n": [1], longName + "a": [2], longName + "b": [3],
  ]

  private static func checkStoredValues(in store: StoreProbe) async throws {
    for name in valueExamples.keys.sorted() { try await store.expectValue(name, nil) }
    for name in valueExamples.keys.sorted() {
      try await store.apply(valueChange(name, from: nil, to: valueExamples[name]))
      try await store.expectValue(name, valueExamples[name])
    }
    for name in valueExamples.keys.sorted() {
      try await store.expectValue(name, valueExamples[name])
    }
    try await store.apply(valueChange("empty", from: [], to: [0]))
    try await store.expectValue("empty", [0])
    try await store.apply(valueChange("bytes", from: valueExamples["bytes"], to: []))
    try await store.expectValue("bytes", [])
    try await store.apply(valueChange("bytes", from: [], to: nil))
    try await store.expectValue("bytes", nil)
    // A batch may compare a value without changing it.
    try await store.apply(valueChange("bytes", from: nil, to: nil))
    try await store.apply(valueChange("empty", from: [0], to: [0]))
    try await store.expectValue("empty", [0])
    try await store.apply(valueChange("bytes", from: nil, to: [7]))
    try await store.expectValue("bytes", [7])
    try await store.expectValue("text", valueExamples["text"])
  }

  private static func checkNamesOfValues(in store: StoreProbe) async throws {
    let names = ["\u{e9}", "e\u{301}", "a", "A", "a ", "\u{feff}a"]
    for (index, name) in names.enumerated() {
      try await store.apply(valueChange(name, from: nil, to: [UInt8(index)]))
    }
    for (index, name) in names.enumerated() {
      try await store.expectValue(name, [UInt8(index)])
    }
    try await store.apply(valueChange("\u{e9}", from: [0], to: nil))
    try await store.expectValue("\u{e9}", nil)
    try await store.expectValue("e\u{301}", [1])
  }

  private static func checkPrefixes(in store: StoreProbe) async throws {
    // In the order of their UTF-8 bytes, which is neither that of characters nor of UTF-16.
    let names = [
      "A.b", "a", "a%b", "a.", "a.b", "a.c", "a_b", "b", "e", "e\u{301}", "\u{e9}", "\u{ff5e}",
      "\u{1f388}", "\u{10ffff}", "\u{10ffff}\u{10ffff}",
    ]
    try await store.expectValues(prefix: "", [])
    for (index, name) in names.enumerated().reversed() {
      try await store.apply(valueChange(name, from: nil, to: [UInt8(index), 0, 255]))
    }
    func expect(_ prefix: String, _ indices: ClosedRange<Int>?) async throws {
      let indices = indices.map(Array.init) ?? []
      try await store.expectValues(
        prefix: prefix,
        indices.map { (names[$0], [UInt8($0), 0, 255]) }
      )
    }
    for (prefix, indices): (String, ClosedRange<Int>?) in [
      ("", 0...14), ("a", 1...6), ("a.", 3...5), ("a.b", 4...4), ("a.bc", nil), ("a%", 2...2),
      ("a_", 6...6), ("e", 8...9), ("\u{e9}", 10...10), ("\u{10ffff}", 13...14), ("A", 0...0),
      ("a\0", nil), ("c", nil),
    ] {
      try await expect(prefix, indices)
    }
    try await store.apply(valueChange("a.c", from: [5, 0, 255], to: nil))
    try await expect("a.", 3...4)
    try await store.apply(valueChange("a.b", from: [4, 0, 255], to: []))
    try await store.expectValues(prefix: "a.b", [("a.b", [])])
  }

  private static func checkValuesAreCompared(in store: StoreProbe) async throws {
    let differs = ChangeOutcome.valueDiffers
    try await store.apply(valueChange("a", from: [], to: [1]), differs)
    try await store.apply(valueChange("a", from: [1], to: nil), differs)
    try await store.expectValue("a", nil)
    try await store.apply(valueChange("a", from: nil, to: [1, 2]))
    for wrong: [UInt8]? in [nil, [], [1], [1, 2, 0], [1, 3], [0, 1, 2], [2, 1]] {
      try await store.apply(valueChange("a", from: wrong, to: [9]), differs)
      try await store.apply(valueChange("a", from: wrong, to: nil), differs)
    }
    try await store.expectValue("a", [1, 2])
    try await store.apply(valueChange("a", from: [1, 2], to: [3]))
    try await store.apply(valueChange("a", from: [1, 2], to: [4]), differs)
    try await store.apply(valueChange("b", from: [3], to: [4]), differs)
    try await store.expectValue("a", [3])
    try await store.expectValue("b", nil)
  }

  private static func checkDifferingValueRefusesBatch(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2))
    let lease = try await store.claim(1).tasks.first.required().lease
    try await store.apply(valueChange("a", from: nil, to: [1]))
    let before = try await store.tasks()
    let changes: [TaskChange] = [
      .insert(.numbered(3), onDuplicate: .keep), .succeed(lease, at: .second(1), retains: false),
      .cancel(.unclaimed(.numbered(2)), at: .second(1), retains: true),
    ]
    let refused: [TaskChange] = [
      .resume(.numbered(9)), .insert(.numbered(4, key: "k"), onDuplicate: .reject),
      .insert(.numbered(1), onDuplicate: .keep),
    ]
    let good = valueChange("b", from: nil, to: [2])
    let bad = valueChange("a", from: [0], to: [3])
    for batch in [
      [bad] + changes + [good], [good] + changes + [bad], refused + [good, bad] + changes,
      changes + refused + [bad], [bad, good], [good, bad],
    ] {
      let outcomes = try await store.apply(batch)
      let expected = batch.map { _ in ChangeOutcome.valueDiffers.step }
      try store.expect("the outcomes", outcomes.map(\.step), expected)
    }
    try await store.expectValue("a", [1])
    try await store.expectValue("b", nil)
    try await store.expectTasks([1, 2])
    for record in before { try await store.expect(record.id.number, is: record) }
    // If each value is the expected one, the whole batch is stored.
    let outcomes = try await store.apply([valueChange("a", from: [1], to: [3]), good] + changes)
    try store.expect("the outcomes", outcomes, [.done, .done, .done, .done, .done])
    try await store.expectValue("a", [3])
    try await store.expectValue("b", [2])
    try await store.expectTasks([2, 3])
  }

  private static func checkValuesOfRefusedBatch(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"))
    try await store.apply(valueChange("a", from: nil, to: [1]))
    let batch = [
      valueChange("a", from: [1], to: [2]), .insert(.numbered(2, key: "k"), onDuplicate: .reject),
      valueChange("b", from: nil, to: [3]),
    ]
    let outcomes = try await store.apply(batch)
    let expected: [ChangeOutcome] = [.batchRefused, .duplicate(of: .numbered(1)), .batchRefused]
    try store.expect("the outcomes", outcomes.map(\.step), expected.map(\.step))
    try await store.expectValue("a", [1])
    try await store.expectValue("b", nil)
    try await store.apply(valueChange("a", from: [1], to: [2]))
  }

  private static func checkValuesAreSeparateFromTasks(in store: StoreProbe) async throws {
    let bytes = Array("steady".utf8)
    try await store.apply(
      [valueChange("A", from: nil, to: bytes), valueChange("b", from: nil, to: [1])],
      durability: .relaxed
    )
    try await store.expectTasks([])
    try store.expect("the count", try await store.count(), 0)
    try await store.insert(.numbered(1), .numbered(2, at: 50))
    let lease = try await store.claimOne()
    try await store.apply(.park(lease, failure: .at(1)))
    try await store.apply(.unpark(name: "A"))
    try await store.apply(.rebase(.second(-50)))
    for number in 1...2 {
      try await store.apply(.cancel(.unclaimed(.numbered(number)), at: .second(1), retains: true))
    }
    try await store.apply(.remove(.numbered(1)))
    for state in TaskState.allCases {
      try await store.apply(
        .prune(state, endedBefore: .second(1e6), keepingLatest: 0, now: .second(1))
      )
    }
    try store.expect(try await store.claim(otherNames: 9, at: 1_000), [])
    try await store.expectTasks([])
    try await store.expectValue("A", bytes)
    try await store.expectValue("b", [1])
  }

  private static func checkInvalidValues(in store: StoreProbe) async throws {
    let long = [UInt8](repeating: 1, count: 65_537)
    let refused = [
      valueChange("", from: nil, to: [1]),
      valueChange(String(repeating: "n", count: 1_025), from: nil, to: [1]),
      valueChange(String(repeating: "é", count: 513), from: nil, to: [1]),
      valueChange("a\0b", from: nil, to: [1]),
      valueChange("a", from: nil, to: long), valueChange("a", from: long, to: [1]),
    ]
    for change in refused {
      let step = change.step.replacing("\0", with: "\\0")
      try await store.expectError("apply insert 1; \(step)", isInvalidArgument) {
        _ = try await store.store.apply(
          [.insert(.numbered(1), onDuplicate: .keep), change],
          durability: .durable
        )
      }
    }
    try await store.expectTasks([])
    try await store.expectValue("a", nil)
  }
}

/// Requirements about values in closed, reopened, shared and concurrent stores.
extension PersistenceConformance.Requirement {
  static let valuesInStores: [Self] = [
    Self(
      "life.values",
      "A closed or destroyed store throws. After a store is destroyed, the next one at its place "
        + "has no values.",
      .reopened,
      check: checkValueLifetime
    ),
    Self(
      "reopen.values",
      "After the store is reopened, it has its values, but not those that were removed.",
      .reopened,
      check: checkValuesAfterReopening
    ),
    Self(
      "sharing.values",
      "Two stores that are open at once share their values.",
      .shared,
      check: checkSharedValues
    ),
    Self(
      "concurrency.values",
      "When many callers compare and set a value at the same time, one succeeds, and no update is "
        + "lost.",
      check: checkConcurrentValues
    ),
  ]

  private static func checkValueLifetime(in store: StoreProbe) async throws {
    try await store.apply(valueChange("a", from: nil, to: [1]))
    store.recordStep("close")
    try await store.store.close()
    try await store.expectError("value") { _ = try await store.value(named: "a") }
    try await store.expectError("values") { _ = try await store.values(prefix: "a") }
    let second = try await store.openNextStore()
    try await second.expectValue("a", [1])
    second.recordStep("destroy, and open again")
    try await second.store.destroy()
    try await second.expectError("value") { _ = try await second.value(named: "a") }
    let third = try await second.openNextStore()
    try await third.expectValue("a", nil)
    try await third.apply(valueChange("a", from: nil, to: [2]))
  }

  private static func checkValuesAfterReopening(in store: StoreProbe) async throws {
    for name in valueExamples.keys.sorted() {
      try await store.apply(valueChange(name, from: nil, to: valueExamples[name]))
    }
    try await store.apply([valueChange("relaxed", from: nil, to: [4])], durability: .relaxed)
    try await store.apply(valueChange("text", from: valueExamples["text"], to: nil))
    try await store.apply(valueChange("control", from: valueExamples["control"], to: [5]))
    try await store.apply(valueChange("control", from: [6], to: [7]), .valueDiffers)
    var next = store
    for _ in 1...2 {
      next = try await next.reopen()
      for name in valueExamples.keys.sorted() where name != "text" && name != "control" {
        try await next.expectValue(name, valueExamples[name])
      }
      try await next.expectValue("relaxed", [4])
      try await next.expectValue("text", nil)
      try await next.expectValue("control", [5])
    }
    try await next.apply(
      valueChange("control", from: valueExamples["control"], to: [8]),
      .valueDiffers
    )
    try await next.apply(valueChange("control", from: [5], to: [8]))
    try await next.apply(valueChange("text", from: nil, to: [9]))
  }

  private static func checkSharedValues(in store: StoreProbe) async throws {
    try await store.apply(valueChange("a", from: nil, to: [1]))
    let other = try await store.openSecondStore()
    try await other.expectValue("a", [1])
    try await other.expectValues(prefix: "", [("a", [1])])
    try await other.apply(valueChange("a", from: [1], to: [2]))
    try await store.expectValue("a", [2])
    try await store.apply(valueChange("a", from: [1], to: [3]), .valueDiffers)
    try await store.apply(valueChange("a", from: [2], to: nil))
    try await other.expectValue("a", nil)
    try await other.apply(valueChange("a", from: [2], to: [4]), .valueDiffers)
  }

  private static func checkConcurrentValues(in store: StoreProbe) async throws {
    for round in 0..<10 {
      store.recordStep("\(callers) callers set the value 'round \(round)', which does not exist")
      let outcomes = try await runConcurrently { caller in
        let bytes = [UInt8(caller)]
        let change = valueChange("round \(round)", from: nil, to: bytes)
        return (bytes, try await store.store.apply([change], durability: .relaxed)[0])
      }
      let winners = outcomes.filter { $0.1 == .done }.map(\.0)
      try store.expect("the number of outcomes that are done", winners.count, 1)
      let others = outcomes.count { $0.1 == .valueDiffers }
      try store.expect("the number of outcomes valueDiffers", others, callers - 1)
      try await store.expectValue("round \(round)", winners[0])
    }
    store.recordStep(
      "\(callers) callers add 1 to the value 'sum' 10 times each, trying until it succeeds"
    )
    let sums = try await runConcurrently { _ in
      for _ in 0..<10 { try await addOne(toValueNamed: "sum", in: store) }
      return true
    }
    try store.expect("the callers that return", sums.count, callers)
    try await store.expectValue("sum", [UInt8(callers * 10)])
  }

  /// Adds 1 to the number that is stored in a value.
  private static func addOne(toValueNamed name: String, in store: StoreProbe) async throws {
    // Each failure means that another caller has added 1, or is about to.
    for _ in 0..<10_000 {
      let old = try await store.store.value(named: name)
      let new = [(old?.first ?? 0) &+ 1]
      let change = valueChange(name, from: old, to: new)
      let outcome = try await store.store.apply([change], durability: .relaxed)
      if outcome == [.done] { return }
      try store.expect("the outcome", outcome.map(\.step), [ChangeOutcome.valueDiffers.step])
    }
    throw ConformanceMismatch(
      expected: "a value that was just read can be set",
      found: "the value differed 10,000 times"
    )
  }
}
