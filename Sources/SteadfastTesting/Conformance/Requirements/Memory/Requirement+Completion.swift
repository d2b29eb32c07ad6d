import SteadfastQueue
import SystemFoundation

/// Requirements about completions: values that other code provides to a task.
extension PersistenceConformance.Requirement {
  static let completion: [Self] = [
    Self(
      "completion.wakes",
      "A completion wakes a suspended task. The task is available since its creation date, behind "
        + "the waiting tasks with the same priority and date.",
      check: checkCompletionWakesSuspendedTask
    ),
    Self(
      "completion.others",
      "A completion of a task that is not suspended changes only what the task remembers.",
      check: checkCompletionOfUnsuspendedTasks
    ),
    Self(
      "completion.first",
      "Only the first of several completions counts. A name that is not open can't be completed.",
      check: checkFirstCompletionCounts
    ),
    Self(
      "completion.ended",
      "A task that has ended or doesn't exist can't be completed.",
      check: checkCompletionOfEndedTasks
    ),
    Self(
      "completion.held",
      "A completed task that depends on other tasks is not claimed before those have ended.",
      check: checkCompletionDoesNotOverrideDependency
    ),
  ]

  private static func checkCompletionWakesSuspendedTask(in store: StoreProbe) async throws {
    let record = TaskRecord.numbered(1, created: -5)
    for until: Double? in [60, nil] {
      let fresh = try await store.openEmptyStore(suffix: until == nil ? "endless" : "dated")
      let lease = try await fresh.startTask(record, open: "open")
      try await fresh.apply(.suspend(lease, until: until, "open"))
      try await fresh.insert(.numbered(2, at: -5), .numbered(3, priority: 1), .numbered(4, at: -4))
      try await fresh.apply(.complete(1, "open", [7]))
      try await fresh.expectMemory(1, ["step": [1, 2], "open": [7]])
      try await fresh.expect(1, is: record.inState(.waiting, at: -5, remembering: 11))
      try await fresh.insert(.numbered(5, at: -5))
      let claim = try await fresh.claim()
      try fresh.expect(claim, [3, 2, 1, 5, 4])
      try fresh.expect(
        claim.tasks[2].record,
        is: record.inState(.running, at: -5, remembering: 11)
      )
      try await fresh.apply(.complete(1, "open", [8]), .stale)
    }
    // Any completion wakes the task, even of a name that the task doesn't await.
    let lease = try await store.startTask(record, open: "one", "two")
    try await store.apply(.suspend(lease, until: nil, "one"))
    try await store.apply(.complete(1, "two", [1]))
    try await store.apply(.suspend(try await store.claimOne(), until: nil, "one"))
    try store.expect(try await store.claim(), [])
    try await store.apply(.complete(1, "one", [2]))
    try store.expect(try await store.claim(), [1])
  }

  private static func checkCompletionOfUnsuspendedTasks(in store: StoreProbe) async throws {
    for number in 1...4 {
      let lease = try await store.startTask(.numbered(number), remembering: [:], open: "open")
      switch number {
      case 1:
        try await store.apply(
          .retry(lease, availableDate: .second(60), retryCount: 2, failure: .at(1))
        )
      case 2: try await store.apply(.pause(.claimed(lease)))
      case 3: try await store.apply(.park(lease, failure: .at(1)))
      default: break
      }
    }
    try await store.insert(.numbered(5, at: 60))
    let before = try await store.tasks()
    for number in 1...4 {
      try await store.apply(.complete(number, "open", [1]))
      try await store.expect(number, is: before[number - 1].with { $0.memorySize = 5 })
      try await store.expectMemory(number, ["open": [1]])
    }
    try store.expect(try await store.claim(at: 59), [])
    try store.expect(try await store.claim(at: 60), [1, 5])
    try await store.apply(.resume(.numbered(2)))
    try await store.apply(.unpark(name: "A"))
    try store.expect(try await store.claim(), [2, 3])
    for number in 1...4 { try await store.expectMemory(number, ["open": [1]]) }
  }

  private static func checkFirstCompletionCounts(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), open: "open", "other")
    try await store.apply(.complete(1, "step", [9]), .stale)
    try await store.apply(.complete(1, "never", [9]), .stale)
    try await store.apply(.complete(1, "Open", [9]), .stale)
    try await store.apply(.complete(1, "open", [3]))
    try await store.apply(.complete(1, "open", [4]), .stale)
    try await store.expectMemory(1, ["step": [1, 2], "open": [3], "other": []])
    try await store.expect(1, is: .numbered(1).inState(.running, remembering: 16))
    try await store.apply(.suspend(lease, until: nil, "other"))
    // A repeated completion does not wake the task.
    try await store.apply(.complete(1, "open", [4]), .stale)
    try await store.apply(.complete(1, "never", [4]), .stale)
    try store.expect(try await store.claim(), [])
    try await store.apply(.complete(1, "other", [5]))
    try await store.apply(.complete(1, "other", [6]), .stale)
    try await store.expectMemory(1, ["step": [1, 2], "open": [3], "other": [5]])
    // With its lease, an attempt may overwrite a completed value, or remove the bytes of the value.
    let next = try await store.claimOne()
    try await store.remember(next, named: "open", value: [])
    try await store.apply(.complete(1, "open", [7]))
    try await store.remember(next, named: "other", value: [8])
    try await store.apply(.complete(1, "other", [9]), .stale)
    try await store.expectMemory(1, ["step": [1, 2], "open": [7], "other": [8]])
  }

  private static func checkCompletionOfEndedTasks(in store: StoreProbe) async throws {
    try await store.apply(.complete(1, "open", [1]), .stale)
    try await store.insert(.numbered(1))
    try await store.apply(.complete(1, "open", [1]), .stale)
    try await store.expectMemory(1, [:])
    try await store.apply(.cancel(1, retains: false))
    let ends: [(Lease) -> TaskChange] = [
      { .abandon($0, failure: .at(1), retains: true) },
      { .cancel(.claimed($0), at: .second(1), retains: true) },
      { .succeed($0, at: .second(1), retains: true) },
    ]
    for (number, end) in ends.enumerated() {
      let lease = try await store.startTask(.numbered(number), open: "open")
      try await store.apply(end(lease))
      let before = try await store.task(number)
      try await store.apply(.complete(number, "open", [1]), .stale)
      try await store.expect(number, is: before)
    }
    try await store.expectMemory(0, ["step": [1, 2], "open": []])
    // After a restart, the task can be completed.
    try await store.apply(.restart(0))
    try await store.apply(.complete(0, "open", [1]))
    try await store.expectMemory(0, ["step": [1, 2], "open": [1]])
  }

  private static func checkCompletionDoesNotOverrideDependency(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), TaskRecord.numbered(2).after(1))
    try await store.perform(1)
    let lease = try await store.claimExactly(2)[0]
    try await store.remember(lease, named: "open", value: [])
    try await store.apply(.suspend(lease, until: nil, "open"))
    try await store.apply(.restart(1, at: 60), .cascading())
    try await store.apply(.complete(2, "open", [1]))
    try store.expect(try await store.claim(), [])
    try await store.perform(1, at: 60)
    try store.expect(try await store.claim(), [2])
  }
}
