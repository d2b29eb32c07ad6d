import SteadfastQueue

/// Requirements about unique keys.
extension PersistenceConformance.Requirement {
  static let uniqueKeys: [Self] = [
    Self(
      "unique.keep",
      "A second task with a key is left out, whatever state the first one is in.",
      check: keepTwin
    ),
    Self(
      "unique.reject",
      "A second task with a key is refused, whatever state the first one is in.",
      check: rejectTwin
    ),
    Self(
      "unique.replace",
      "A task that replaces one which has neither begun nor ended removes it, and says so.",
      check: replaceTwin
    ),
    Self(
      "unique.replace-running",
      "A task that replaces one which is running takes its key, and both go on.",
      check: replaceRunningTwin
    ),
    Self(
      "unique.replace-ended",
      "A task that replaces one which has ended removes it without a word.",
      check: replaceEndedTwin
    ),
    Self("unique.freed", "A key is free when its task has gone.", check: freed),
    Self(
      "unique.exact",
      "Keys that differ in case or in white space differ, and tasks without a key have no twins.",
      check: exactKeys
    ),
  ]

  private static func keepTwin(_ store: StoreProbe) async throws {
    try await addTwins(store, .keep)
  }

  private static func rejectTwin(_ store: StoreProbe) async throws {
    try await addTwins(store, .reject)
  }

  /// Inserts a second task for a task in each state, and expects that it changes nothing.
  private static func addTwins(_ store: StoreProbe, _ policy: UniquePolicy) async throws {
    _ = try await insertOneInEachState(store)
    try await store.insert(.numbered(7, name: "B", key: "key 7"))
    try store.expect(try await store.claim(names: ["B": 1]), [7])
    let before = try await store.tasks()
    for number in 1...7 {
      let twin = TaskRecord.numbered(10 + number, priority: 9, key: "key \(number)")
      try await store.apply(
        .insert(twin, onDuplicate: policy),
        .duplicate(of: .numbered(number))
      )
    }
    try await store.expectTasks([1, 2, 3, 4, 5, 6, 7])
    for record in before { try await store.expect(record.id.number, is: record) }
  }

  private static func replaceTwin(_ store: StoreProbe) async throws {
    for record in try await insertOneInEachState(store).prefix(3) {
      let number = record.id.number
      let new = TaskRecord.numbered(10 + number, name: "B", key: "key \(number)")
      try await store.apply(.insert(new, onDuplicate: .replace), .replaced(record.id))
      try await store.expect(10 + number, is: new)
    }
    try await store.expectTasks([4, 5, 6, 11, 12, 13])
    try store.expect(try await store.claim(names: ["A": 9, "B": 9], at: 9), [11, 12, 13])
  }

  private static func replaceRunningTwin(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2, key: "other"))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.apply(.insert(.numbered(3, key: "k"), onDuplicate: .replace))
    try await store.apply(.insert(.numbered(4, key: "other"), onDuplicate: .replace))
    try await store.expectTasks([1, 2, 3, 4])
    // The first task's record still has the key.
    try await store.expectTasks([1, 3], TaskFilter(uniqueKeys: ["k"]))
    let twin = TaskChange.insert(.numbered(9, key: "k"), onDuplicate: .keep)
    try await store.apply(twin, .duplicate(of: .numbered(3)))
    // Whether the first task is removed or waits again, it does not hold the key any more.
    try await store.apply(.succeed(leases[0], at: .second(1), retains: false))
    try await store.apply(
      .retry(leases[1], availableDate: .second(9), retryCount: 1, failure: nil)
    )
    try await store.apply(twin, .duplicate(of: .numbered(3)))
    let last = TaskRecord.numbered(5, key: "other")
    try await store.apply(.insert(last, onDuplicate: .replace), .replaced(.numbered(4)))
    try await store.expectTasks([2, 3, 5])
    try store.expect(try await store.claim(at: 9), [3, 5, 2])
  }

  private static func replaceEndedTwin(_ store: StoreProbe) async throws {
    for record in try await insertOneInEachState(store).suffix(3) {
      let number = record.id.number
      let new = TaskRecord.numbered(10 + number, key: "key \(number)")
      try await store.apply(.insert(new, onDuplicate: .replace), .done)
    }
    try await store.expectTasks([1, 2, 3, 14, 15, 16])
  }

  private static func freed(_ store: StoreProbe) async throws {
    _ = try await insertOneInEachState(store)
    try await store.insert(.numbered(7, name: "B", key: "key 7"))
    let lease = try await store.claim(names: ["B": 1]).tasks.first.required().lease
    try await store.apply(.remove(.numbered(4)))
    try await store.apply(.prune(.abandoned, endedBefore: .second(99), keepingLatest: nil))
    try await store.apply(.prune(.cancelled, endedBefore: nil, keepingLatest: 0))
    for number in 1...3 {
      let target = TaskTarget.unclaimed(.numbered(number))
      try await store.apply(.cancel(target, at: .second(20), retains: false))
    }
    try await store.apply(.succeed(lease, at: .second(20), retains: false))
    for number in 1...7 {
      let next = TaskRecord.numbered(10 + number, key: "key \(number)")
      try await store.apply(.insert(next, onDuplicate: .reject))
    }
    try await store.expectTasks([11, 12, 13, 14, 15, 16, 17])
  }

  private static func exactKeys(_ store: StoreProbe) async throws {
    let keys: [String?] = [nil, nil, "k", "K", "k ", " k", "", "ß", "ss", "'k'", "k%", "null"]
    for (number, key) in keys.enumerated() {
      try await store.apply(.insert(.numbered(number, key: key), onDuplicate: .reject))
    }
    for (number, key) in keys.enumerated() where key != nil {
      let twin = TaskRecord.numbered(100, key: key)
      try await store.apply(.insert(twin, onDuplicate: .keep), .duplicate(of: .numbered(number)))
    }
  }
}
