import SteadfastQueue
import SystemFoundation

/// Requirements about the metadata of tasks.
extension PersistenceConformance.Requirement {
  static let metadata: [Self] = [
    Self(
      "metadata.stored",
      "Look-ups and claims return a task's metadata unchanged, up to 64 keys and 4,096 bytes.",
      check: checkStoredMetadata
    ),
    Self(
      "metadata.filter",
      "A look-up by metadata finds the tasks that have all of the keys, with the same bytes and "
        + "with values of the same bytes.",
      check: checkLookUpsByMetadata
    ),
    Self(
      "metadata.update",
      "An update with metadata replaces all of it or, if the new metadata is empty, removes it. "
        + "Any other update leaves it.",
      check: checkUpdatesOfMetadata
    ),
    Self(
      "metadata.replace",
      "A task that is replaced gets the metadata of the new task, which may be empty. A successor "
        + "keeps its own.",
      check: checkReplacedMetadata
    ),
  ]

  /// Metadata that a store might mix up, with a number.
  private static func unusual(_ number: Int) -> [String: String] {
    [
      "number": "\(number)", "\"quoted\" \\": "a \"b\" \\ 'c'", "line\nfeed": "tab\t\u{1}\u{7f}",
      "🎈": "👩‍👩‍👧", "\u{e9}": "e\u{301}", "a.b[0]": "$.x", "empty": "", "null": "null",
    ]
  }

  /// Tasks with little, unusual and the most metadata, and without any.
  private static let samples = [
    TaskRecord.numbered(1, metadata: ["tenant": "eins"]),
    .numbered(2, metadata: unusual(2)),
    .numbered(3, metadata: TaskRecord.metadata(count: 64)),
    .numbered(4, metadata: ["k": String(repeating: "v", count: 4_095)]),
    .numbered(5),
    .numbered(6, key: "key", order: "o", metadata: unusual(6)),
  ]

  private static func checkStoredMetadata(in store: StoreProbe) async throws {
    for record in samples { try await store.insert(record) }
    for record in samples { try await store.expect(record.id.number, is: record) }
    for claimed in try await store.claim().tasks {
      let stored = samples[claimed.record.id.number - 1].metadata
      let isSame = claimed.record.metadata.containsExactly(stored)
      try store.expect("whether a claim returns the metadata", isSame, true)
    }
  }

  private static func checkLookUpsByMetadata(in store: StoreProbe) async throws {
    // Two encodings of é, which Swift treats as equal.
    let (one, two) = ("\u{e9}", "e\u{301}")
    try await store.insert(
      .numbered(1, metadata: ["tenant": "eins", "region": "eu"]),
      .numbered(2, metadata: ["tenant": "eins"]),
      .numbered(3, name: "B", metadata: ["tenant": "zwei", "region": "eu"])
    )
    try await store.insert(.numbered(4), .numbered(5, metadata: unusual(5)))
    try await store.insert(.numbered(6, metadata: ["é?": one]), .numbered(7, metadata: ["é?": two]))
    try await store.insert(.numbered(8, metadata: [one: "1"]), .numbered(9, metadata: [two: "1"]))
    let cases: [([String: String], [Int])] = [
      ([:], [1, 2, 3, 4, 5, 6, 7, 8, 9]), (["tenant": "eins"], [1, 2]), (["region": "eu"], [1, 3]),
      (["tenant": "eins", "region": "eu"], [1]), (["tenant": "eins", "region": "us"], []),
      (["Tenant": "eins"], []), (["tenant": "Eins"], []), (["eins": "tenant"], []),
      (["tenant": ""], []), (["empty": ""], [5]), (["null": "null"], [5]), (unusual(5), [5]),
      (unusual(4), []), (["é?": one], [6]), (["é?": two], [7]), ([one: "1"], [8]),
      ([two: "1"], [9]), ([one: two], [5]), (["tenant": "eins\0"], []), (["tenant\0": "eins"], []),
    ]
    for (metadata, numbers) in cases {
      let filter = TaskFilter(metadata: metadata)
      try await store.expectTasks(numbers, filter)
      try store.expect("the count", try await store.count(filter), numbers.count)
      let isAny = try await store.contains(filter)
      try store.expect("whether there is any", isAny, !numbers.isEmpty)
    }
    try await store.expectTasks([3], TaskFilter(names: ["B"], metadata: ["region": "eu"]))
  }

  private static func checkUpdatesOfMetadata(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(1, metadata: ["tenant": "eins", "region": "eu"]),
      .numbered(2)
    )
    var expected = [try await store.task(1), try await store.task(2)]
    for update in [
      TaskUpdate(tags: ["t"]), TaskUpdate(metadata: ["tenant": "zwei"]),
      TaskUpdate(priority: 1), TaskUpdate(tags: [], metadata: unusual(1)),
      TaskUpdate(metadata: [:]), TaskUpdate(metadata: TaskRecord.metadata(count: 64)),
    ] {
      for index in expected.indices {
        try await store.apply(.update(expected[index].id, update))
        expected[index].apply(update)
        try await store.expect(index + 1, is: expected[index])
      }
    }
    try await store.expectTasks([1, 2], TaskFilter(metadata: ["key 1": "1"]))
    try await store.expectTasks([], TaskFilter(metadata: ["tenant": "zwei"]))
  }

  private static func checkReplacedMetadata(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k", metadata: ["old": "1", "both": "1"]))
    for (number, metadata) in [(2, unusual(2)), (3, [:]), (4, ["both": "4"])] {
      let new = TaskRecord.numbered(number, key: "k", payload: 1, metadata: metadata)
      try await store.apply(.insert(new, onDuplicate: .replace), .replaced(.numbered(1)))
      try await store.expect(1, is: .numbered(1, key: "k", metadata: metadata))
    }
    // The policy `keep` adds no metadata to the existing task.
    let duplicate = TaskRecord.numbered(5, key: "k", metadata: ["kept": "5"])
    try await store.apply(.insert(duplicate, onDuplicate: .keep), .duplicate(of: .numbered(1)))
    try await store.expectTasks([1], TaskFilter(metadata: ["both": "4"]))
    let claim = try await store.claim()
    try store.expect(claim, [1])
    try await store.insert(.numbered(6, key: "k", metadata: ["own": "6"]))
    try await store.apply(
      .retry(claim.tasks[0].lease, availableDate: .second(0), retryCount: 1, failure: .at(1)),
      .superseded(by: .numbered(6))
    )
    try await store.expectTasks([6], TaskFilter(metadata: ["own": "6"]))
    try await store.expectTasks([], TaskFilter(metadata: ["both": "4"]))
  }

  static func checkMetadataAfterReopening(in store: StoreProbe) async throws {
    for record in samples { try await store.insert(record) }
    let update = TaskUpdate(metadata: unusual(1))
    try await store.apply(.update(.numbered(1), update))
    try await store.apply(.update(.numbered(3), TaskUpdate(metadata: [:])))
    try await store.apply(.update(.numbered(5), update))
    let new = TaskRecord.numbered(7, key: "key", payload: 6, metadata: ["new": "7"])
    try await store.apply(.insert(new, onDuplicate: .replace), .replaced(.numbered(6)))
    var metadata = samples.map(\.metadata)
    metadata[0] = unusual(1)
    metadata[2] = [:]
    metadata[4] = unusual(1)
    metadata[5] = ["new": "7"]
    var next = store
    for _ in 1...2 {
      next = try await next.reopen()
      for (number, expected) in zip(1..., metadata) {
        let found = try await next.task(number).metadata
        try next.expect("the metadata of task \(number)", found.step, expected.step)
        try next.expect("whether its bytes are the same", found.containsExactly(expected), true)
      }
      try await next.expectTasks([1, 5], TaskFilter(metadata: ["number": "1"]))
      try await next.expectTasks([6], TaskFilter(metadata: ["new": "7"]))
    }
  }
}

extension TaskRecord {
  /// Makes metadata with this number of keys.
  static func metadata(count: Int) -> [String: String] {
    Dictionary(uniqueKeysWithValues: (1...count).map { ("key \($0)", "\($0)") })
  }
}
