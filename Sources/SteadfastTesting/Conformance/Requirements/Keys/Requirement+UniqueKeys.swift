import SteadfastQueue
import SystemFoundation

/// Requirements about the insertion of a task with a unique key.
extension PersistenceConformance.Requirement {
  static let uniqueKeys: [Self] = [
    Self(
      "unique.keep",
      "A second task with a key is skipped while the first one waits, is parked or is paused, and is "
        + "added once the first one has ended.",
      check: checkPolicyKeep
    ),
    Self(
      "unique.replace",
      "When a task replaces one that waits, is parked or is paused, the existing task gets the new "
        + "payload and options, and keeps its ID.",
      check: checkPolicyReplace
    ),
    Self(
      "unique.replace-date",
      "A replacement with a later date moves the task to that date, but not beyond its latest date. "
        + "A replacement that is available at once doesn't move the task back. The date of a retry "
        + "never gets earlier.",
      check: checkDateOfReplacedTask
    ),
    Self(
      "unique.reject",
      "A second task with a key is refused until the first one has ended.",
      check: checkPolicyReject
    ),
    Self(
      "unique.join",
      "A task with the policy `join` is skipped while another task with its key waits or runs.",
      check: checkPolicyJoin
    ),
    Self(
      "unique.window",
      "Until its uniqueness ends, a task that runs or has succeeded is not pruned, and new tasks "
        + "with its key are duplicates.",
      check: checkUniquenessUntilDate
    ),
    Self(
      "unique.names",
      "Tasks with the same key but different names don't affect each other.",
      check: checkKeysOfDifferentNames
    ),
    Self(
      "unique.exact",
      "Keys that differ only in case or white space are different. A task without a key is never a "
        + "duplicate.",
      check: checkKeysAreComparedExactly
    ),
  ]

  private static func checkPolicyKeep(in store: StoreProbe) async throws {
    let before = try await insertTaskOfEachState(in: store)
    try await addTwins(to: store, policy: .keep, priority: 9)
    for record in before { try await store.expect(record.id.number, is: record) }
    try store.expect(try await store.claim(at: 9), [14, 15, 16, 1])
    // A look-up by key finds all tasks with that key.
    try await store.expectTasks([5, 15], TaskFilter(uniqueKeys: ["key 5"]))
  }

  private static func checkPolicyReplace(in store: StoreProbe) async throws {
    for record in try await insertTaskOfEachState(in: store).prefix(3) {
      let number = record.id.number
      let new = TaskRecord.numbered(
        10 + number,
        priority: number,
        key: "key \(number)",
        tags: ["new"],
        expires: .second(900)
      ).with { $0.apply(TaskUpdate(payload: StoredPayload([9], format: .binary, version: 3))) }
      try await store.apply(.insert(new, onDuplicate: .replace), .replaced(record.id))
      try await store.expect(
        number,
        is: record.with { old in
          old.apply(
            TaskUpdate(
              payload: new.payload,
              priority: new.priority,
              expiryDate: .second(900),
              tags: ["new"]
            )
          )
          if old.state == .parked { old.state = .waiting }
        }
      )
    }
    try await store.expectTasks([1, 2, 3, 4, 5, 6])
    try store.expect(try await store.claim(at: 9), [2, 1])
  }

  private static func checkDateOfReplacedTask(in store: StoreProbe) async throws {
    func replace(_ number: Int, _ key: String, at seconds: Double, latest: Double? = nil)
      async throws
    {
      let new = TaskRecord.numbered(90 + number, at: seconds, key: key, latest: latest)
      try await store.apply(.insert(new, onDuplicate: .replace), .replaced(.numbered(number)))
    }
    func expectDate(_ number: Int, _ seconds: Double) async throws {
      let date = try await store.task(number).availableDate
      try store.expect("the date of task \(number)", date, .second(seconds))
    }
    // A later date moves the task, up to the latest date that was set first.
    try await store.insert(.numbered(1, at: 10, key: "late", latest: 25))
    try await replace(1, "late", at: 20, latest: 99)
    try await expectDate(1, 20)
    try await replace(1, "late", at: 30)
    try await expectDate(1, 25)
    // A replacement that is available at once never moves the task back.
    try await store.insert(.numbered(2, at: -5, key: "first"), .numbered(3, at: -5))
    try await replace(2, "first", at: 0)
    try await expectDate(2, -5)
    try await store.insert(.numbered(4, at: 60, key: "soon"))
    try await replace(4, "soon", at: 0)
    try await expectDate(4, 0)
    try store.expect(try await store.claim(at: 0), [2, 3, 4])
    // The date of a retry stays.
    try await store.insert(.numbered(5, at: 1, key: "retry"))
    let lease = try await store.claim(at: 1).tasks.first.required().lease
    try await store.apply(
      .retry(lease, availableDate: .second(50), retryCount: 1, failure: .at(1))
    )
    try await replace(5, "retry", at: 0)
    try await expectDate(5, 50)
    try await replace(5, "retry", at: 70)
    try await expectDate(5, 70)
    let retries = try await store.task(5).retryCount
    try store.expect("the retries of task 5", retries, 1)
  }

  private static func checkPolicyReject(in store: StoreProbe) async throws {
    _ = try await insertTaskOfEachState(in: store)
    try await addTwins(to: store, policy: .reject)
  }

  private static func checkPolicyJoin(in store: StoreProbe) async throws {
    _ = try await insertTaskOfEachState(in: store)
    try store.expect(try await store.claim(at: 9), [1])
    try await addTwins(to: store, policy: .join)
  }

  private static func checkUniquenessUntilDate(in store: StoreProbe) async throws {
    for number in 1...3 {
      try await store.insert(.numbered(number, key: "key \(number)", uniqueUntil: 60))
    }
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 3)
    func twin(_ number: Int, _ key: Int, at seconds: Double) -> TaskRecord {
      .numbered(number, key: "key \(key)", created: seconds)
    }
    for policy: UniquePolicy in [.keep, .join] {
      try await store.apply(
        .insert(twin(9, 1, at: 1), onDuplicate: policy),
        .duplicate(of: .numbered(1))
      )
    }
    try await store.apply(.succeed(leases[0], at: .second(2), retains: true))
    try await store.apply(.abandon(leases[1], failure: .at(2), retains: true))
    try await store.apply(.succeed(leases[2], at: .second(2), retains: true))
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(59), keepingLatest: 0, now: .second(59))
    )
    for policy: UniquePolicy in [.keep, .reject, .join] {
      try await store.apply(
        .insert(twin(9, 1, at: 59), onDuplicate: policy),
        .duplicate(of: .numbered(1))
      )
    }
    // A new task is not a duplicate of an abandoned task, and a replacement is always added.
    try await store.insert(twin(12, 2, at: 3))
    try await store.apply(.insert(twin(13, 3, at: 3), onDuplicate: .replace))
    try await store.insert(twin(11, 1, at: 60))
    try await store.apply(
      .prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: .second(60))
    )
    try await store.expectTasks([2, 11, 12, 13])
  }

  private static func checkKeysOfDifferentNames(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2, name: "B", key: "k"))
    try await store.apply(
      .insert(.numbered(3, name: "B", key: "k"), onDuplicate: .keep),
      .duplicate(of: .numbered(2))
    )
    let claim = try await store.claim(names: ["A": 9, "B": 9])
    try store.expect(claim, [1, 2])
    try await store.insert(.numbered(4, name: "B", key: "k"))
    try await store.apply(.succeed(claim.tasks[0].lease, at: .second(1), retains: false))
    try store.expect(try await store.claim(names: ["A": 9, "B": 9]), [])
    try await store.expectTasks([2, 4], TaskFilter(uniqueKeys: ["k"]))
  }

  private static func checkKeysAreComparedExactly(in store: StoreProbe) async throws {
    let keys: [String?] = [nil, nil, "k", "K", "k ", " k", "", "ß", "ss", "'k'", "k%", "null"]
    for (number, key) in keys.enumerated() {
      try await store.apply(.insert(.numbered(number, key: key), onDuplicate: .reject))
    }
    for (number, key) in keys.enumerated() where key != nil {
      let twin = TaskRecord.numbered(100, key: key)
      try await store.apply(.insert(twin, onDuplicate: .keep), .duplicate(of: .numbered(number)))
    }
  }

  /// Adds a twin, a task with the same name and key, of each of six tasks.
  ///
  /// The last three of these tasks have ended. Expects that only the twins of the first three are
  /// skipped.
  private static func addTwins(
    to store: StoreProbe,
    policy: UniquePolicy,
    priority: Int = 0
  ) async throws {
    for number in 1...6 {
      let twin = TaskRecord.numbered(10 + number, priority: priority, key: "key \(number)")
      try await store.apply(
        .insert(twin, onDuplicate: policy),
        number <= 3 ? .duplicate(of: .numbered(number)) : .done
      )
    }
    try await store.expectTasks([1, 2, 3, 4, 5, 6, 14, 15, 16])
  }
}
