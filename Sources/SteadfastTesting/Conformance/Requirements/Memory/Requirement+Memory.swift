import SteadfastQueue
import SystemFoundation

extension TaskMemory {
  /// Makes a memory with these values, by their names.
  init(_ values: KeyValuePairs<String, [UInt8]>) {
    self.init()
    for (name, value) in values { self[name] = value }
  }

  /// The names and the values, as shown in the steps of a report.
  var step: String {
    isEmpty
      ? "nothing"
      : names.map { name in "'\(name.prefix(80))': \(self[name].step)" }.joined(separator: ", ")
  }
}

extension TaskRecord {
  /// Returns a copy of the task in another state that remembers `size` bytes.
  func inState(
    _ state: TaskState,
    at seconds: Double? = nil,
    remembering size: Int? = nil
  ) -> TaskRecord {
    with { record in
      record.state = state
      if let seconds { record.availableDate = .second(seconds) }
      if let size { record.memorySize = size }
    }
  }
}

extension TaskChange {
  /// Returns a change that completes a value for which the task with this number waits.
  static func complete(_ number: Int, _ name: String, _ value: [UInt8]) -> TaskChange {
    .complete(.numbered(number), named: name, value: value)
  }

  /// Returns a change that suspends a claimed task until a date or, if there is none, until a
  /// completion.
  static func suspend(
    _ lease: Lease,
    until seconds: Double? = nil,
    _ names: String...
  ) -> TaskChange {
    .suspend(lease, until: seconds.map(Date.second) ?? .distantFuture, awaiting: names)
  }
}

extension StoreProbe {
  func memory(ofTask number: Int) async throws -> TaskMemory {
    try await recordCall("read what \(number) remembers", \.step) {
      try await store.memory(of: .numbered(number))
    }
  }

  /// Expects that the task with this number remembers exactly these values, each under its name.
  func expectMemory(
    _ number: Int,
    _ expected: KeyValuePairs<String, [UInt8]>
  ) async throws {
    try await expectMemory(number, TaskMemory(expected))
  }

  func expectMemory(_ number: Int, _ expected: TaskMemory) async throws {
    let found = try await memory(ofTask: number)
    guard found != expected else { return }
    throw ConformanceMismatch(
      expected: "task \(number) remembers \(expected.step)",
      found: found.step
    )
  }

  /// Makes a claimed task remember bytes under a name.
  func remember(_ lease: Lease, named name: String, value: [UInt8]) async throws {
    try await apply(.remember(lease, named: name, value: value))
  }

  /// Adds and claims a task, makes it remember values, and returns its lease.
  ///
  /// The task also remembers a value without bytes under each name in `open`. Such a value can be
  /// completed.
  func startTask(
    _ record: TaskRecord,
    remembering values: KeyValuePairs<String, [UInt8]> = ["step": [1, 2]],
    open: String...
  ) async throws -> Lease {
    try await insert(record)
    let lease = try await claimExactly(record.id.number)[0]
    for (name, value) in values { try await remember(lease, named: name, value: value) }
    for name in open { try await remember(lease, named: name, value: []) }
    return lease
  }

  /// Whether the check can interrupt running tasks, by reopening the store or by moving its clock.
  var canInterruptTasks: Bool {
    store.sharing == nil ? trial.reopens : trial.advanceClock != nil
  }

  /// Interrupts all running tasks, as a crash does, and returns the store to continue with.
  ///
  /// A store with one queue is reopened. In a store that several queues share, the claims expire.
  func interruptTasks() async throws -> StoreProbe {
    guard store.sharing != nil else { return try await reopen() }
    try await advanceClock(bySeconds: Self.leaseTime + maxExpiryDelay)
    return self
  }
}

/// Requirements about what a task remembers.
extension PersistenceConformance.Requirement {
  static let memory: [Self] = [
    Self(
      "memory.kept",
      "A task's values come back byte for byte. Remembering a value under an existing name replaces "
        + "the old one.",
      check: checkStoredMemory
    ),
    Self(
      "memory.names",
      "Two names in a task's memory are the same only if their UTF-8 bytes are equal.",
      check: checkNamesInMemory
    ),
    Self(
      "memory.apart",
      "The memories of different tasks are separate, and so are the values of the store.",
      check: checkMemoriesAreSeparate
    ),
    Self(
      "memory.lease",
      "A task can remember something only with its current lease.",
      check: checkLeaseForRemembering
    ),
    Self(
      "memory.batch",
      "In one batch, a task may remember several values, and other tasks may change too.",
      check: checkMemoriesInBatch
    ),
    Self(
      "memory.refused",
      "If a batch is refused or a value differs, the batch changes no task's memory.",
      check: checkMemoryAfterRefusedBatch
    ),
    Self(
      "memory.size",
      "Look-ups, claims and filters use the current size of a task's memory. A new task remembers "
        + "nothing.",
      check: checkMemorySize
    ),
    Self(
      "reopen.interruptions",
      "When a task remembers something, its interruptions are reset. Its memory survives later "
        + "interruptions.",
      .reopened,
      check: checkInterruptionsOfRememberingTask
    ),
  ]

  static let longMemoryName = String(repeating: "n", count: 1_023)

  /// Values by their names; some have the maximum length, and together they have every byte.
  static let memories: KeyValuePairs<String, [UInt8]> = [
    "bytes": Array(0...255), "empty": [], "text": Array("é\"\\ 🎈".utf8),
    "control": [0, 10, 31, 127], "quotes": Array(repeating: 34, count: 131_072),
    "large": (0..<131_072).map { UInt8(truncatingIfNeeded: $0 &* 251) },
    "naïve \"name\" \\ 任務 🎈'; --\n": [1], longMemoryName + "a": [2],
    longMemoryName + "b": [3], "a": [4], "b": [5],
  ]

  private static func checkStoredMemory(in store: StoreProbe) async throws {
    try await store.expectMemory(1, [:])
    try await store.insert(.numbered(1))
    try await store.expectMemory(1, [:])
    let lease = try await store.claimOne()
    try await store.expectMemory(1, [:])
    var expected = TaskMemory()
    for (name, value) in memories {
      try await store.remember(lease, named: name, value: value)
      expected[name] = value
      try await store.expectMemory(1, expected)
    }
    // Other values under the same names: more bytes, fewer, none, and the same ones.
    let others: KeyValuePairs<String, [UInt8]> = [
      "bytes": [7], "empty": [0], "quotes": [], "large": Array(0...200), "a": [4], "text": [],
      "text": [9, 9],
    ]
    for (name, value) in others {
      try await store.remember(lease, named: name, value: value)
      expected[name] = value
      try await store.expectMemory(1, expected)
    }
  }

  private static func checkNamesInMemory(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), remembering: [:])
    let names = ["\u{e9}", "e\u{301}", "a", "A", "a ", " a", "\u{feff}a"]
    var expected = TaskMemory()
    for (index, name) in names.enumerated() {
      try await store.remember(lease, named: name, value: [UInt8(index)])
      expected[name] = [UInt8(index)]
    }
    try await store.expectMemory(1, expected)
    try await store.remember(lease, named: "\u{e9}", value: [])
    expected["\u{e9}"] = []
    try await store.expectMemory(1, expected)
    // Completing e\u{301} must not complete \u{e9}, which is open.
    try await store.apply(.complete(1, "e\u{301}", [8]), .stale)
    try await store.apply(.complete(1, "\u{e9}", [8]))
    expected["\u{e9}"] = [8]
    try await store.expectMemory(1, expected)
  }

  private static func checkMemoriesAreSeparate(in store: StoreProbe) async throws {
    let first = try await store.startTask(.numbered(1), remembering: ["step": [1], "a": [2]])
    let second = try await store.startTask(.numbered(2), remembering: ["step": [3]])
    try await store.apply(.setValue(named: "a", from: nil, to: [9]))
    try await store.remember(first, named: "step", value: [4])
    try await store.expectMemory(1, ["step": [4], "a": [2]])
    try await store.expectMemory(2, ["step": [3]])
    try await store.expectValue("a", [9])
    try await store.expectValue("step", nil)
    try await store.apply(.setValue(named: "a", from: [9], to: nil))
    try await store.apply(.succeed(first, at: .second(1), retains: false))
    try await store.expectMemory(1, [:])
    try await store.expectMemory(2, ["step": [3]])
    try await store.remember(second, named: "a", value: [])
    try await store.expectTasks([2])
    try await store.expect(2, is: .numbered(2).inState(.running, remembering: 6))
  }

  private static func checkLeaseForRemembering(in store: StoreProbe) async throws {
    let old = try await store.startTask(.numbered(1), remembering: ["step": [1]])
    try await store.insert(.numbered(2, at: 60))
    try await store.apply(.release(old))
    func expectStale(_ leases: [Lease]) async throws {
      for lease in leases {
        for name in ["step", "other"] {
          try await store.apply(.remember(lease, named: name, value: [9]), .stale)
        }
        try await store.apply(.suspend(lease, until: 9), .stale)
      }
      try await store.expectMemory(1, ["step": [1]])
      try await store.expectMemory(2, [:])
      try await store.expectMemory(3, [:])
    }
    try await expectStale([old])
    try await store.expect(1, is: .numbered(1).inState(.waiting, remembering: 5))
    let present = try await store.claimOne()
    try await expectStale([
      old, Lease(id: present.id, token: present.token &+ 1),
      Lease(id: .numbered(2), token: present.token), Lease(id: .numbered(3), token: present.token),
    ])
    try await store.expect(1, is: .numbered(1).inState(.running, remembering: 5))
    try await store.expect(2, is: .numbered(2, at: 60))
    try await store.apply(.abandon(present, failure: .at(1), retains: true))
    try await expectStale([present])
  }

  private static func checkMemoriesInBatch(in store: StoreProbe) async throws {
    let first = try await store.startTask(.numbered(1), remembering: ["a": [0]])
    let second = try await store.startTask(.numbered(2), remembering: [:])
    let third = try await store.startTask(.numbered(3), remembering: [:], open: "other")
    var outcomes = try await store.apply(
      [
        .remember(first, named: "a", value: [1]), .insert(.numbered(4), onDuplicate: .keep),
        .remember(second, named: "a", value: [2]), .remember(first, named: "b", value: [3]),
        .remember(Lease(id: .numbered(9), token: 1), named: "a", value: [4]),
        .succeed(third, at: .second(1), retains: true), .remember(first, named: "c", value: []),
        .setValue(named: "a", from: nil, to: [5]), .remember(second, named: "b", value: [6]),
      ],
      durability: .relaxed
    )
    let done = ChangeOutcome.done
    try store.expect(
      "the outcomes",
      outcomes.map(\.step),
      [done, done, done, done, .stale, done, done, done, done].map(\.step)
    )
    try await store.expectMemory(1, ["a": [1], "b": [3], "c": []])
    try await store.expectMemory(2, ["a": [2], "b": [6]])
    try await store.expectMemory(3, [:])
    // Many names in one large batch.
    let many = (0..<200).map { number in
      TaskChange.remember(second, named: "name \(number)", value: [UInt8(number)])
    }
    outcomes = try await store.apply(many)
    try store.expect("the outcomes", outcomes, many.map { _ in .done })
    let memory = try await store.memory(ofTask: 2)
    try store.expect("the number of names", memory.names.count, 202)
    for number in 0..<200 {
      try store.expect("a value", memory["name \(number)"], [UInt8(number)])
    }
  }

  private static func checkMemoryAfterRefusedBatch(in store: StoreProbe) async throws {
    try await store.insert(.numbered(9, name: "B", key: "k"))
    let lease = try await store.startTask(.numbered(1), remembering: ["a": [1]], open: "open")
    try await store.apply(.setValue(named: "v", from: nil, to: [1]))
    let changes: [TaskChange] = [
      .remember(lease, named: "a", value: [9]), .remember(lease, named: "b", value: [9]),
    ]
    let twin = TaskRecord.numbered(2, name: "B", key: "k")
    for refusal: TaskChange in [
      .insert(twin, onDuplicate: .reject), .insert(.numbered(9), onDuplicate: .keep),
      .setValue(named: "v", from: nil, to: [2]),
    ] {
      for batch in [
        changes + [refusal], [refusal] + changes, [.complete(1, "open", [9]), refusal],
        [.suspend(lease), refusal],
      ] {
        let outcomes = try await store.apply(batch)
        try store.expect("whether any is done", outcomes.contains { $0.isDone }, false)
        try await store.expectMemory(1, ["a": [1], "open": []])
      }
    }
    try await store.expect(1, is: .numbered(1).inState(.running, remembering: 6))
    try await store.apply(.complete(1, "open", [2]))
    try await store.expectMemory(1, ["a": [1], "open": [2]])
  }

  private static func checkMemorySize(in store: StoreProbe) async throws {
    // The store ignores the memory size of a new record.
    try await store.insert(TaskRecord.numbered(1).with { $0.memorySize = 7 }, .numbered(2))
    try await store.expect(1, is: .numbered(1))
    let filters = [
      TaskFilter(remembers: true), TaskFilter(remembers: false),
      TaskFilter(states: [.running], remembers: true),
    ]
    func expectFound(_ numbers: [[Int]]) async throws {
      for (filter, numbers) in zip(filters, numbers) {
        try await store.expectTasks(numbers, filter)
        try store.expect("the count", try await store.count(filter), numbers.count)
        let isAny = try await store.contains(filter)
        try store.expect("whether there is any", isAny, !numbers.isEmpty)
      }
    }
    try await expectFound([[], [1, 2], []])
    let lease = try await store.claim(1).tasks.first.required().lease
    let running = TaskRecord.numbered(1).inState(.running)
    // The bytes of a name count even if its value is empty; é has two bytes.
    try await store.remember(lease, named: "é", value: [])
    try await store.expect(1, is: running.inState(.running, remembering: 2))
    try await expectFound([[1], [2], [1]])
    try await store.remember(lease, named: "step", value: [1, 2, 3])
    try await store.expect(1, is: running.inState(.running, remembering: 9))
    try await store.remember(lease, named: "step", value: [1])
    try await store.expect(1, is: running.inState(.running, remembering: 7))
    try await store.apply(.complete(1, "é", Array(0..<100)))
    try await store.expect(1, is: running.inState(.running, remembering: 107))
    try await store.apply(.release(lease))
    try await expectFound([[1], [2], []])
    let claim = try await store.claim(1)
    try store.expect(claim, [1])
    try store.expect(claim.tasks[0].record, is: running.inState(.running, remembering: 107))
    let target = TaskTarget.claimed(claim.tasks[0].lease)
    try await store.apply(.restart(target, availableDate: .second(0), forgets: true))
    try await store.expect(1, is: .numbered(1))
    try await expectFound([[], [1, 2], []])
  }

  private static func checkInterruptionsOfRememberingTask(in store: StoreProbe) async throws {
    guard store.canInterruptTasks else { return }
    try await store.insert(.numbered(1), .numbered(2))
    try store.expect(try await store.claim(leaseTime: StoreProbe.leaseTime), [1, 2])
    let second = try await store.interruptTasks()
    let claim = try await second.claim(at: 20, leaseTime: StoreProbe.leaseTime)
    try second.expect(claim, [1, 2])
    let counts = claim.tasks.map(\.record.interruptionCount)
    try second.expect("interruptions", counts, [1, 1])
    try await second.remember(claim.tasks[0].lease, named: "step", value: [1])
    try await second.expect(1, is: .numbered(1).inState(.running, remembering: 5))
    let third = try await second.interruptTasks()
    try await third.expectMemory(1, ["step": [1]])
    let next = try await third.claim(at: 40)
    try third.expect(next, [1, 2])
    try third.expect("interruptions", next.tasks.map(\.record.interruptionCount), [1, 2])
    try third.expect("the size of the memory", next.tasks.map(\.record.memorySize), [5, 0])
    try await third.remember(next.tasks[0].lease, named: "step", value: [2])
    try await third.expect(1, is: .numbered(1).inState(.running, remembering: 5))
  }
}

/// Requirements about what tasks remember, and about suspended tasks, in reopened, shared and
/// concurrently used stores.
extension PersistenceConformance.Requirement {
  static let memoryInStores: [Self] = [
    Self(
      "form.memory",
      "The name of a remembered value is refused if it is empty, longer than 1,024 bytes, or "
        + "contains a NUL. Also refused are a value of more than 131,072 bytes, and a completion "
        + "without bytes.",
      check: checkInvalidMemories
    ),
    Self(
      "life.memory",
      "A closed or destroyed store throws. After a store is destroyed, the next one at its place "
        + "has no memories.",
      .reopened,
      check: checkMemoryLifetime
    ),
    Self(
      "reopen.memory",
      "After the store is reopened, tasks in all states still have their memories.",
      .reopened,
      check: checkMemoryAfterReopening
    ),
    Self(
      "reopen.suspended",
      "After the store is reopened, suspended tasks have the same dates and order, and can wake.",
      .reopened,
      check: checkSuspendedTasksAfterReopening
    ),
    Self(
      "sharing.memory",
      "Two stores that are open at once share the memories of tasks, and each can complete names "
        + "that the other opened.",
      .shared,
      check: checkSharedMemory
    ),
    Self(
      "sharing.suspended",
      "A suspended task has no claim that could expire. After it is claimed on its date and that "
        + "claim expires, it is claimed again.",
      .sharedWithClock,
      check: checkSharedSuspendedTask
    ),
    Self(
      "concurrency.memory",
      "When many calls make a task remember values at the same time, it remembers all of them.",
      check: checkConcurrentRemembering
    ),
    Self(
      "concurrency.completions",
      "Only one of many concurrent completions counts. A concurrent suspension does not miss it.",
      check: checkConcurrentCompletions
    ),
  ]

  private static func checkInvalidMemories(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), remembering: [:], open: "open")
    let long = [UInt8](repeating: 1, count: 131_073)
    let names = [
      "", String(repeating: "n", count: 1_025), String(repeating: "é", count: 513), "a\0b",
    ]
    let refused: [TaskChange] =
      names.flatMap { name -> [TaskChange] in
        [
          .remember(lease, named: name, value: [1]), .complete(1, name, [1]),
          .suspend(lease, until: .second(60), awaiting: ["open", name]),
        ]
      } + [
        .remember(lease, named: "a", value: long), .complete(1, "open", long),
        .complete(1, "open", []), .suspend(lease, until: TaskRecord.lastDate + 1, awaiting: []),
        .suspend(lease, until: Date(timeIntervalSince1970: .nan), awaiting: []),
      ]
    for change in refused {
      let step = change.step.replacing("\0", with: "\\0")
      try await store.expectError("apply insert 2; \(step)", isInvalidArgument) {
        _ = try await store.store.apply(
          [.insert(.numbered(2), onDuplicate: .keep), change],
          durability: .durable
        )
      }
    }
    try await store.expectTasks([1])
    try await store.expectMemory(1, ["open": []])
    try await store.expect(1, is: .numbered(1).inState(.running, remembering: 4))
  }

  private static func checkMemoryLifetime(in store: StoreProbe) async throws {
    _ = try await store.startTask(.numbered(1))
    store.recordStep("close")
    try await store.store.close()
    try await store.expectError("memory") { _ = try await store.memory(ofTask: 1) }
    let second = try await store.openNextStore()
    try await second.expectMemory(1, ["step": [1, 2]])
    second.recordStep("destroy, and open again")
    try await second.store.destroy()
    try await second.expectError("memory") { _ = try await second.memory(ofTask: 1) }
    let third = try await second.openNextStore()
    try await third.expectMemory(1, [:])
    let lease = try await third.startTask(.numbered(1), remembering: [:])
    try await third.expectMemory(1, [:])
    try await third.remember(lease, named: "other", value: [1])
    try await third.expectMemory(1, ["other": [1]])
  }

  /// Changes that end a claim, one of each kind.
  private static var changesThatEnd: [(Lease) -> TaskChange] {
    [
      { .release($0) }, { .pause(.claimed($0)) }, { .park($0, failure: .at(1)) },
      { .abandon($0, failure: .at(1), retains: true) },
      { .cancel(.claimed($0), at: .second(1), retains: true) }, { .suspend($0) },
      { .succeed($0, at: .second(1), retains: true) },
      { .restart(.claimed($0), availableDate: .second(60), forgets: true) },
    ]
  }

  private static func checkMemoryAfterReopening(in store: StoreProbe) async throws {
    var leases: [Lease] = []
    // Task 9 keeps running.
    for number in 1...9 {
      let value = [UInt8(number)]
      leases.append(
        try await store.startTask(.numbered(number), remembering: ["step": value], open: "open")
      )
    }
    for (lease, end) in zip(leases, changesThatEnd) { try await store.apply(end(lease)) }
    var expected = (1...9).map { TaskMemory(["step": [UInt8($0)], "open": []]) }
    (expected[6], expected[7]) = (TaskMemory(), TaskMemory())
    for (name, value) in memories {
      let change = TaskChange.remember(leases[8], named: name, value: value)
      _ = try await store.apply([change], durability: .relaxed)
      expected[8][name] = value
    }
    var next = store
    for round in 1...3 {
      next = try await next.reopen()
      for (index, memory) in expected.enumerated() {
        try await next.expectMemory(index + 1, memory)
        let size = try await next.task(index + 1).memorySize
        try next.expect("the size of the memory", size, memory.size)
      }
      guard round == 1 else { continue }
      try await next.apply(.complete(2, "open", [5]))
      try await next.apply(.complete(2, "open", [6]), .stale)
      expected[1]["open"] = [5]
      try await next.apply(.cancel(1, retains: false))
      try await next.insert(.numbered(1, at: 60))
      expected[0] = TaskMemory()
    }
  }

  private static func checkSuspendedTasksAfterReopening(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number, created: -5)) }
    let leases = try await store.claimExactly(1, 2, 3, 4)
    for lease in leases { try await store.remember(lease, named: "open", value: []) }
    try await store.apply(.suspend(leases[1], until: 60, "open"))
    try await store.apply(.suspend(leases[0], until: 60))
    try await store.apply(.suspend(leases[2], until: nil, "open"))
    try await store.apply(.complete(4, "open", [4]))
    try await store.apply(.suspend(leases[3], until: nil, "open"))
    let records = try await store.tasks()
    let states: [TaskState] = [.suspended, .suspended, .suspended, .waiting]
    try store.expect("the states", records.map(\.state), states)
    var next = store
    for _ in 1...2 {
      next = try await next.reopen()
      for record in records { try await next.expect(record.id.number, is: record) }
    }
    try await next.apply(.complete(3, "open", [3]))
    next = try await next.reopen()
    try await next.expect(3, is: records[2].inState(.waiting, at: -5, remembering: 5))
    let claim = try await next.claim()
    try next.expect(claim, [4, 3])
    try next.expectNextDate(claim, by: 60, at: 0)
    try next.expect(try await next.claim(at: 60), [2, 1])
    try await next.expectMemory(3, ["open": [3]])
    try await next.expectMemory(1, ["open": []])
  }

  private static func checkSharedMemory(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), open: "open", "second")
    let other = try await store.openSecondStore()
    try await other.expectMemory(1, ["step": [1, 2], "open": [], "second": []])
    try await store.apply(.suspend(lease, until: nil, "open"))
    try await other.apply(.complete(1, "open", [3]))
    try await store.apply(.complete(1, "open", [4]), .stale)
    let mine = try await store.claimOne()
    try await store.expectMemory(1, ["step": [1, 2], "open": [3], "second": []])
    try await other.apply(.complete(1, "second", [5]))
    // The other store can't use the lease of the ended claim.
    try await other.apply(.remember(lease, named: "step", value: [9]), .stale)
    try await store.apply(.suspend(mine, until: nil, "second"))
    let theirs = try await other.claimOne()
    try await other.remember(theirs, named: "step", value: [6])
    try await store.apply(.remember(mine, named: "step", value: [7]), .stale)
    try await store.expectMemory(1, ["step": [6], "open": [3], "second": [5]])
  }

  private static func checkSharedSuspendedTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let leases = try await store.claim(leaseTime: StoreProbe.leaseTime).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.remember(leases[0], named: "step", value: [1])
    try await store.apply(.suspend(leases[0], until: 100))
    try await store.apply(.extend(leases[0], for: .seconds(500)), .stale)
    _ = try await store.interruptTasks()
    var claim = try await store.claim(at: 70, leaseTime: StoreProbe.leaseTime)
    try store.expect(claim, [2])
    try await store.apply(.suspend(claim.tasks[0].lease))
    claim = try await store.claim(at: 95)
    try store.expectNextDate(claim, by: 100, at: 95)
    let old = try await store.claimOne(at: 100, leaseTime: StoreProbe.leaseTime)
    try store.expect(try await store.claim(at: 109), [])
    _ = try await store.interruptTasks()
    claim = try await store.claim(at: 110)
    try store.expect(claim, [1])
    try store.expect(
      claim.tasks[0].record,
      is: TaskRecord.numbered(1).inState(.running, at: 100, remembering: 5)
        .with { $0.interruptionCount = 1 }
    )
    try await store.apply(.suspend(old, until: 200), .stale)
    try await store.apply(.remember(old, named: "step", value: [2]), .stale)
    try await store.remember(claim.tasks[0].lease, named: "step", value: [3])
    try await store.expect(
      1,
      is: TaskRecord.numbered(1).inState(.running, at: 100, remembering: 5)
    )
  }

  private static func checkConcurrentRemembering(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), remembering: [:])
    store.recordStep("\(callers) callers let task 1 remember 10 values each")
    let outcomes = try await runConcurrently { caller in
      var outcomes: [ChangeOutcome] = []
      for index in 0..<10 {
        let name = "\(caller) \(index)"
        let change = TaskChange.remember(lease, named: name, value: [UInt8(index)])
        outcomes += try await store.store.apply([change], durability: .relaxed)
      }
      return outcomes
    }.flatMap(\.self)
    try store.expect("the outcomes that are done", outcomes.count { $0 == .done }, callers * 10)
    var expected = TaskMemory()
    for caller in 0..<callers {
      for index in 0..<10 { expected["\(caller) \(index)"] = [UInt8(index)] }
    }
    try await store.expectMemory(1, expected)
    let size = try await store.task(1).memorySize
    try store.expect("the size of the memory", size, expected.size)
  }

  private static func checkConcurrentCompletions(in store: StoreProbe) async throws {
    for round in 0..<20 {
      let lease = try await store.startTask(.numbered(round), remembering: [:], open: "open")
      store.recordStep("\(callers - 1) callers complete 'open' of \(round), one suspends it")
      let outcomes = try await runConcurrently { caller in
        let change =
          caller == 0
          ? TaskChange.suspend(lease, until: nil, "open")
          : .complete(round, "open", [UInt8(caller)])
        return (caller, try await store.store.apply([change], durability: .relaxed)[0])
      }
      let suspended = outcomes.filter { $0.0 == 0 }.map(\.1)
      try store.expect("the outcome of the suspension", suspended, [.done])
      let winners = outcomes.filter { $0.0 > 0 && $0.1 == .done }.map(\.0)
      try store.expect("the completions that are done", winners.count, 1)
      try await store.expectMemory(round, ["open": [UInt8(winners[0])]])
      try await store.expect(round, is: .numbered(round).inState(.waiting, remembering: 5))
      try await store.perform(round)
    }
  }
}
