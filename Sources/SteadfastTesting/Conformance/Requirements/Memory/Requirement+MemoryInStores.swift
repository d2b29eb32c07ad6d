import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Requirements about memories and suspended tasks in several stores, and in calls at once.
extension PersistenceConformance.Requirement {
  static let memoryInStores: [Self] = [
    Self(
      "form.memory",
      "A name to remember that is empty, longer than 1,024 bytes, or has a NUL is refused, and so is "
        + "a value of more than 131,072 bytes, and a completion without bytes.",
      check: form
    ),
    Self(
      "life.memory",
      "A store that was destroyed or closed throws, and one that is made at its place has no memory.",
      .reopened,
      check: life
    ),
    Self(
      "reopen.memory",
      "What tasks remember is there when the store is opened again, whatever their states.",
      .reopened,
      check: reopened
    ),
    Self(
      "reopen.suspended",
      "Suspended tasks keep their dates and places, and wake in a store that is opened again.",
      .reopened,
      check: suspendedReopened
    ),
    Self(
      "sharing.memory",
      "Of two stores that are open at once, each has what a task remembers by the other, and "
        + "completes what the other has opened.",
      .shared,
      check: shared
    ),
    Self(
      "sharing.suspended",
      "A suspended task has no claim that could run out. One that was claimed on its date is handed "
        + "out again when that claim has.",
      .sharedWithClock,
      check: sharedSuspended
    ),
    Self(
      "concurrency.memory",
      "What a task is to remember by many calls at the same time is all remembered.",
      check: concurrentMemory
    ),
    Self(
      "concurrency.completions",
      "Of many completions at the same time one counts. None is missed by a suspension at that time.",
      check: concurrentCompletions
    ),
  ]

  private static func form(_ store: StoreProbe) async throws {
    let lease = try await store.begin(.numbered(1), remembering: [:], open: "open")
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
    try await store.expect(1, is: .numbered(1).being(.running, remembering: 4))
  }

  private static func life(_ store: StoreProbe) async throws {
    _ = try await store.begin(.numbered(1))
    store.note("close")
    try await store.store.close()
    try await store.expectError("memory") { _ = try await store.memory(1) }
    let second = try await store.successor()
    try await second.expectMemory(1, ["step": [1, 2]])
    second.note("destroy, and open again")
    try await second.store.destroy()
    try await second.expectError("memory") { _ = try await second.memory(1) }
    let third = try await second.successor()
    try await third.expectMemory(1, [:])
    let lease = try await third.begin(.numbered(1), remembering: [:])
    try await third.expectMemory(1, [:])
    try await third.remember(lease, "other", [1])
    try await third.expectMemory(1, ["other": [1]])
  }

  /// One change of each kind that ends a claim.
  private static var changesThatEnd: [(Lease) -> TaskChange] {
    [
      { .release($0) }, { .pause(.claimed($0)) }, { .park($0, failure: .at(1)) },
      { .abandon($0, failure: .at(1), retains: true) },
      { .cancel(.claimed($0), at: .second(1), retains: true) }, { .suspend($0) },
      { .succeed($0, at: .second(1), retains: true) },
      { .restart(.claimed($0), availableDate: .second(60), forgets: true) },
    ]
  }

  private static func reopened(_ store: StoreProbe) async throws {
    var leases: [Lease] = []
    // Task 9 still runs.
    for number in 1...9 {
      let value = [UInt8(number)]
      leases.append(
        try await store.begin(.numbered(number), remembering: ["step": value], open: "open")
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
      next = try await next.reopened()
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

  private static func suspendedReopened(_ store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number, created: -5)) }
    let leases = try await store.claimed(1, 2, 3, 4)
    for lease in leases { try await store.remember(lease, "open", []) }
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
      next = try await next.reopened()
      for record in records { try await next.expect(record.id.number, is: record) }
    }
    try await next.apply(.complete(3, "open", [3]))
    next = try await next.reopened()
    try await next.expect(3, is: records[2].being(.waiting, at: -5, remembering: 5))
    let claim = try await next.claim()
    try next.expect(claim, [4, 3])
    try next.expectNextDate(claim, by: 60, at: 0)
    try next.expect(try await next.claim(at: 60), [2, 1])
    try await next.expectMemory(3, ["open": [3]])
    try await next.expectMemory(1, ["open": []])
  }

  private static func shared(_ store: StoreProbe) async throws {
    let lease = try await store.begin(.numbered(1), open: "open", "second")
    let other = try await store.another()
    try await other.expectMemory(1, ["step": [1, 2], "open": [], "second": []])
    try await store.apply(.suspend(lease, until: nil, "open"))
    try await other.apply(.complete(1, "open", [3]))
    try await store.apply(.complete(1, "open", [4]), .stale)
    let mine = try await store.claimOne()
    try await store.expectMemory(1, ["step": [1, 2], "open": [3], "second": []])
    try await other.apply(.complete(1, "second", [5]))
    // What one has claimed does not remember for the other, without the lease.
    try await other.apply(.remember(lease, named: "step", value: [9]), .stale)
    try await store.apply(.suspend(mine, until: nil, "second"))
    let theirs = try await other.claimOne()
    try await other.remember(theirs, "step", [6])
    try await store.apply(.remember(mine, named: "step", value: [7]), .stale)
    try await store.expectMemory(1, ["step": [6], "open": [3], "second": [5]])
  }

  private static func sharedSuspended(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let leases = try await store.claim(leaseTime: StoreProbe.leaseTime).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.remember(leases[0], "step", [1])
    try await store.apply(.suspend(leases[0], until: 100))
    try await store.apply(.extend(leases[0], for: .seconds(500)), .stale)
    _ = try await store.interrupted()
    var claim = try await store.claim(at: 70, leaseTime: StoreProbe.leaseTime)
    try store.expect(claim, [2])
    try await store.apply(.suspend(claim.tasks[0].lease))
    claim = try await store.claim(at: 95)
    try store.expectNextDate(claim, by: 100, at: 95)
    let old = try await store.claimOne(at: 100, leaseTime: StoreProbe.leaseTime)
    try store.expect(try await store.claim(at: 109), [])
    _ = try await store.interrupted()
    claim = try await store.claim(at: 110)
    try store.expect(claim, [1])
    try store.expect(
      claim.tasks[0].record,
      is: TaskRecord.numbered(1).being(.running, at: 100, remembering: 5)
        .with { $0.interruptionCount = 1 }
    )
    try await store.apply(.suspend(old, until: 200), .stale)
    try await store.apply(.remember(old, named: "step", value: [2]), .stale)
    try await store.remember(claim.tasks[0].lease, "step", [3])
    try await store.expect(
      1,
      is: TaskRecord.numbered(1).being(.running, at: 100, remembering: 5)
    )
  }

  private static func concurrentMemory(_ store: StoreProbe) async throws {
    let lease = try await store.begin(.numbered(1), remembering: [:])
    store.note("\(callers) callers let task 1 remember 10 values each")
    let outcomes = try await atOnce { caller in
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

  private static func concurrentCompletions(_ store: StoreProbe) async throws {
    for round in 0..<20 {
      let lease = try await store.begin(.numbered(round), remembering: [:], open: "open")
      store.note("\(callers - 1) callers complete 'open' of \(round), one suspends it")
      let outcomes = try await atOnce { caller in
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
      try await store.expect(round, is: .numbered(round).being(.waiting, remembering: 5))
      try await store.perform(round)
    }
  }
}
