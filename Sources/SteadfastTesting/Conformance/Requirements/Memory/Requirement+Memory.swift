import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Requirements about what a task remembers.
extension PersistenceConformance.Requirement {
  static let memory: [Self] = [
    Self(
      "memory.kept",
      "What a task remembers is found byte for byte; under a name that it has, the value becomes "
        + "another one.",
      check: kept
    ),
    Self(
      "memory.names",
      "Two names that a task remembers are the same only if their UTF-8 bytes are.",
      check: names
    ),
    Self(
      "memory.apart",
      "Each task remembers for itself, and no value of the store is a task's.",
      check: apart
    ),
    Self(
      "memory.lease",
      "A task remembers only with its present lease.",
      check: lease
    ),
    Self(
      "memory.batch",
      "A batch may have several names for one task to remember, beside changes to other tasks.",
      check: batch
    ),
    Self(
      "memory.refused",
      "If a batch is refused, or a value differs, no task remembers anything of it.",
      check: refused
    ),
    Self(
      "memory.size",
      "Look-ups, claims and filters know how much a task remembers; a new task remembers nothing.",
      check: size
    ),
    Self(
      "reopen.interruptions",
      "A task that remembers has no interruptions any more, and all that it had remembered before.",
      .reopened,
      check: interruptions
    ),
  ]

  static let longMemoryName = String(repeating: "n", count: 1_023)

  /// Values as long as they may be, and with each byte.
  static let memories: KeyValuePairs<String, [UInt8]> = [
    "bytes": Array(0...255), "empty": [], "text": Array("é\"\\ 🎈".utf8),
    "control": [0, 10, 31, 127], "quotes": Array(repeating: 34, count: 131_072),
    "large": (0..<131_072).map { UInt8(truncatingIfNeeded: $0 &* 251) },
    "naïve \"name\" \\ 任務 🎈'; --\n": [1], longMemoryName + "a": [2],
    longMemoryName + "b": [3], "a": [4], "b": [5],
  ]

  private static func kept(_ store: StoreProbe) async throws {
    try await store.expectMemory(1, [:])
    try await store.insert(.numbered(1))
    try await store.expectMemory(1, [:])
    let lease = try await store.claimOne()
    try await store.expectMemory(1, [:])
    var expected = TaskMemory()
    for (name, value) in memories {
      try await store.remember(lease, name, value)
      expected[name] = value
      try await store.expectMemory(1, expected)
    }
    // Other values under the same names: more bytes, fewer, none, and the same ones.
    let others: KeyValuePairs<String, [UInt8]> = [
      "bytes": [7], "empty": [0], "quotes": [], "large": Array(0...200), "a": [4], "text": [],
      "text": [9, 9],
    ]
    for (name, value) in others {
      try await store.remember(lease, name, value)
      expected[name] = value
      try await store.expectMemory(1, expected)
    }
  }

  private static func names(_ store: StoreProbe) async throws {
    let lease = try await store.begin(.numbered(1), remembering: [:])
    let names = ["\u{e9}", "e\u{301}", "a", "A", "a ", " a", "\u{feff}a"]
    var expected = TaskMemory()
    for (index, name) in names.enumerated() {
      try await store.remember(lease, name, [UInt8(index)])
      expected[name] = [UInt8(index)]
    }
    try await store.expectMemory(1, expected)
    try await store.remember(lease, "\u{e9}", [])
    expected["\u{e9}"] = []
    try await store.expectMemory(1, expected)
    // To complete e\u{301} is not to complete \u{e9}, which is open.
    try await store.apply(.complete(1, "e\u{301}", [8]), .stale)
    try await store.apply(.complete(1, "\u{e9}", [8]))
    expected["\u{e9}"] = [8]
    try await store.expectMemory(1, expected)
  }

  private static func apart(_ store: StoreProbe) async throws {
    let first = try await store.begin(.numbered(1), remembering: ["step": [1], "a": [2]])
    let second = try await store.begin(.numbered(2), remembering: ["step": [3]])
    try await store.apply(.setValue(named: "a", from: nil, to: [9]))
    try await store.remember(first, "step", [4])
    try await store.expectMemory(1, ["step": [4], "a": [2]])
    try await store.expectMemory(2, ["step": [3]])
    try await store.expectValue("a", [9])
    try await store.expectValue("step", nil)
    try await store.apply(.setValue(named: "a", from: [9], to: nil))
    try await store.apply(.succeed(first, at: .second(1), retains: false))
    try await store.expectMemory(1, [:])
    try await store.expectMemory(2, ["step": [3]])
    try await store.remember(second, "a", [])
    try await store.expectTasks([2])
    try await store.expect(2, is: .numbered(2).being(.running, remembering: 6))
  }

  private static func lease(_ store: StoreProbe) async throws {
    let old = try await store.begin(.numbered(1), remembering: ["step": [1]])
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
    try await store.expect(1, is: .numbered(1).being(.waiting, remembering: 5))
    let present = try await store.claimOne()
    try await expectStale([
      old, Lease(id: present.id, token: present.token &+ 1),
      Lease(id: .numbered(2), token: present.token), Lease(id: .numbered(3), token: present.token),
    ])
    try await store.expect(1, is: .numbered(1).being(.running, remembering: 5))
    try await store.expect(2, is: .numbered(2, at: 60))
    try await store.apply(.abandon(present, failure: .at(1), retains: true))
    try await expectStale([present])
  }

  private static func batch(_ store: StoreProbe) async throws {
    let first = try await store.begin(.numbered(1), remembering: ["a": [0]])
    let second = try await store.begin(.numbered(2), remembering: [:])
    let third = try await store.begin(.numbered(3), remembering: [:], open: "other")
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
    // As many names as a large batch has.
    let many = (0..<200).map { number in
      TaskChange.remember(second, named: "name \(number)", value: [UInt8(number)])
    }
    outcomes = try await store.apply(many)
    try store.expect("the outcomes", outcomes, many.map { _ in .done })
    let memory = try await store.memory(2)
    try store.expect("the number of names", memory.names.count, 202)
    for number in 0..<200 {
      try store.expect("a value", memory["name \(number)"], [UInt8(number)])
    }
  }

  private static func refused(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(9, name: "B", key: "k"))
    let lease = try await store.begin(.numbered(1), remembering: ["a": [1]], open: "open")
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
    try await store.expect(1, is: .numbered(1).being(.running, remembering: 6))
    try await store.apply(.complete(1, "open", [2]))
    try await store.expectMemory(1, ["a": [1], "open": [2]])
  }

  private static func size(_ store: StoreProbe) async throws {
    // A new record that says otherwise is wrong.
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
    let running = TaskRecord.numbered(1).being(.running)
    // A name counts, even if its value has no bytes; é has two.
    try await store.remember(lease, "é", [])
    try await store.expect(1, is: running.being(.running, remembering: 2))
    try await expectFound([[1], [2], [1]])
    try await store.remember(lease, "step", [1, 2, 3])
    try await store.expect(1, is: running.being(.running, remembering: 9))
    try await store.remember(lease, "step", [1])
    try await store.expect(1, is: running.being(.running, remembering: 7))
    try await store.apply(.complete(1, "é", Array(0..<100)))
    try await store.expect(1, is: running.being(.running, remembering: 107))
    try await store.apply(.release(lease))
    try await expectFound([[1], [2], []])
    let claim = try await store.claim(1)
    try store.expect(claim, [1])
    try store.expect(claim.tasks[0].record, is: running.being(.running, remembering: 107))
    let target = TaskTarget.claimed(claim.tasks[0].lease)
    try await store.apply(.restart(target, availableDate: .second(0), forgets: true))
    try await store.expect(1, is: .numbered(1))
    try await expectFound([[], [1, 2], []])
  }

  private static func interruptions(_ store: StoreProbe) async throws {
    // Without a clock that can be moved, no claim of a shared store runs out.
    guard store.canBeInterrupted else { return }
    try await store.insert(.numbered(1), .numbered(2))
    try store.expect(try await store.claim(leaseTime: StoreProbe.leaseTime), [1, 2])
    let second = try await store.interrupted()
    let claim = try await second.claim(at: 20, leaseTime: StoreProbe.leaseTime)
    try second.expect(claim, [1, 2])
    let counts = claim.tasks.map(\.record.interruptionCount)
    try second.expect("interruptions", counts, [1, 1])
    try await second.remember(claim.tasks[0].lease, "step", [1])
    try await second.expect(1, is: .numbered(1).being(.running, remembering: 5))
    let third = try await second.interrupted()
    try await third.expectMemory(1, ["step": [1]])
    let next = try await third.claim(at: 40)
    try third.expect(next, [1, 2])
    try third.expect("interruptions", next.tasks.map(\.record.interruptionCount), [1, 2])
    try third.expect("the size of the memory", next.tasks.map(\.record.memorySize), [5, 0])
    try await third.remember(next.tasks[0].lease, "step", [2])
    try await third.expect(1, is: .numbered(1).being(.running, remembering: 5))
  }
}
