import SteadfastQueue

/// Requirements about calls that are made at the same time.
extension PersistenceConformance.Requirement {
  static let concurrency: [Self] = [
    Self(
      "concurrency.claims",
      "When many callers claim tasks at the same time, each task is returned once.",
      check: checkConcurrentClaims
    ),
    Self(
      "concurrency.changes",
      "When many callers make changes at the same time, no change is lost.",
      check: checkConcurrentChanges
    ),
    Self(
      "concurrency.keys",
      "When many callers add tasks with the same key at the same time, one is stored.",
      check: checkConcurrentInsertionsWithOneKey
    ),
    Self(
      "concurrency.leases",
      "When many callers end the same attempt at the same time, one of them succeeds.",
      check: checkConcurrentEndsOfAttempt
    ),
  ]

  /// The number of concurrent callers.
  static let callers = 8

  /// Runs `body` concurrently for each caller, 0 to 7, and returns the results in any order.
  static func runConcurrently<Result: Sendable>(
    _ body: @escaping @Sendable (Int) async throws -> Result
  ) async throws -> [Result] {
    try await withThrowingTaskGroup(of: Result.self) { group in
      for caller in 0..<callers { group.addTask { try await body(caller) } }
      return try await group.reduce(into: []) { $0.append($1) }
    }
  }

  private static func insertTasks(count: Int, in store: StoreProbe) async throws {
    store.recordStep("apply insertions of the numbers 1 to \(count)")
    let batch = (1...count).map { TaskChange.insert(.numbered($0), onDuplicate: .keep) }
    _ = try await store.store.apply(batch, durability: .durable)
  }

  private static func checkConcurrentClaims(in store: StoreProbe) async throws {
    try await insertTasks(count: 200, in: store)
    store.recordStep("\(callers) callers claim 3 at a time, until nothing is left")
    let request = ClaimRequest(
      limit: 3,
      names: ["A": 1000],
      now: .second(0),
      leaseDuration: store.store.sharing.map { _ in .seconds(StoreProbe.longLeaseTime) }
    )
    var claimed = try await runConcurrently { _ in
      var claimed: [ClaimedTask] = []
      // Limit the claims to the number of tasks: a faulty store may return tasks forever.
      for _ in 1...200 {
        let claim = try await store.store.claim(request)
        guard !claim.tasks.isEmpty else { break }
        claimed += claim.tasks
      }
      return claimed
    }.flatMap(\.self)
    // A store may skip tasks that a concurrent claim is examining. Claim those now.
    for _ in 1...200 {
      let claim = try await store.store.claim(request)
      guard !claim.tasks.isEmpty else { break }
      claimed += claim.tasks
    }
    let numbers = claimed.map(\.record.id.number).sorted()
    for (number, next) in zip(numbers, numbers.dropFirst()) where number == next {
      throw ConformanceMismatch(
        expected: "each task is claimed once",
        found: "task \(number) was claimed again"
      )
    }
    try store.expect("the claimed tasks", numbers, Array(1...200))
  }

  private static func checkConcurrentChanges(in store: StoreProbe) async throws {
    store.recordStep("\(callers) callers add 20 tasks each, one at a time, and cancel each second")
    let outcomes = try await runConcurrently { caller in
      var outcomes: [ChangeOutcome] = []
      for index in 0..<20 {
        let record = TaskRecord.numbered(caller * 100 + index)
        outcomes += try await store.store.apply(
          [.insert(record, onDuplicate: .keep)],
          durability: .relaxed
        )
        guard index % 2 == 1 else { continue }
        outcomes += try await store.store.apply(
          [.cancel(.unclaimed(record.id), at: .second(1), retains: index % 4 == 1)],
          durability: .relaxed
        )
      }
      return outcomes
    }.flatMap(\.self)
    try store.expect("the outcomes that are done", outcomes.count { $0 == .done }, callers * 30)
    let found = try await store.store.tasks(matching: TaskFilter(), after: nil, limit: 1000)
    let expected = (0..<callers).flatMap { caller in
      (0..<20).filter { $0 % 4 != 3 }.map { caller * 100 + $0 }
    }
    try store.expect("the tasks", found.map(\.id.number), expected)
    let waiting = try await store.count(TaskFilter(states: [.waiting]))
    try store.expect("the waiting tasks", waiting, callers * 10)
  }

  private static func checkConcurrentInsertionsWithOneKey(in store: StoreProbe) async throws {
    for round in 0..<10 {
      store.recordStep("\(callers) callers add a task with the key 'key \(round)'")
      let outcomes = try await runConcurrently { caller in
        let twin = TaskRecord.numbered(round * 100 + caller, key: "key \(round)")
        let batch = [TaskChange.insert(twin, onDuplicate: .keep)]
        return try await store.store.apply(batch, durability: .relaxed)[0]
      }
      let kept = try await store.tasks(TaskFilter(uniqueKeys: ["key \(round)"]))
      try store.expect("the number of tasks with the key", kept.count, 1)
      let expected =
        [ChangeOutcome.done.step]
        + Array(repeating: ChangeOutcome.duplicate(of: kept[0].id).step, count: callers - 1)
      try store.expect("the outcomes", outcomes.map(\.step).sorted(), expected.sorted())
    }
  }

  private static func checkConcurrentEndsOfAttempt(in store: StoreProbe) async throws {
    try await insertTasks(count: 20, in: store)
    for task in try await store.claim().tasks {
      store.recordStep("\(callers) callers end \(task.lease.step)")
      let outcomes = try await runConcurrently { caller in
        let change = changes(with: task.lease)[caller]
        return try await store.store.apply([change], durability: .relaxed)[0]
      }
      try store.expect("the outcomes that are done", outcomes.count { $0 == .done }, 1)
      try store.expect(
        "the outcomes that are stale",
        outcomes.count { $0 == .stale },
        callers - 1
      )
    }
  }
}
