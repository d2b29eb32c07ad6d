import SteadfastQueue
import SystemFoundation

/// Requirements about which changes make a task forget what it remembers.
extension PersistenceConformance.Requirement {
  static let forgetting: [Self] = [
    Self(
      "memory.succeeded",
      "A task that succeeds forgets everything, even if it is retained.",
      check: checkMemoryAfterSuccess
    ),
    Self(
      "memory.stays",
      "All other changes keep what the task remembers, including abandonment and cancellation.",
      check: checkMemoryAfterOtherChanges
    ),
    Self(
      "memory.removed",
      "When a task is removed, so is its memory. A new task with the same ID remembers nothing.",
      check: checkMemoryAfterRemoval
    ),
    Self(
      "memory.restarted",
      "A restart keeps all that the task remembers, or makes it forget everything, as requested.",
      check: checkMemoryAfterRestart
    ),
    Self(
      "memory.along",
      "Cascading cancellations and restarts keep what the tasks remember.",
      check: checkMemoryAfterCascades
    ),
    Self(
      "unique.remembers",
      "A holder that remembers something is neither superseded nor replaced. A new task becomes its "
        + "successor.",
      check: checkHolderWithMemoryStays
    ),
  ]

  private static func checkMemoryAfterSuccess(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1), open: "open")
    let other = try await store.startTask(.numbered(2))
    try await store.apply(.succeed(lease, at: .second(1), retains: true))
    try await store.expectMemory(1, [:])
    try await store.expectMemory(2, ["step": [1, 2]])
    try await store.expect(
      1,
      is: .numbered(1).inState(.succeeded).with { $0.finishedDate = .second(1) }
    )
    try await store.apply(.complete(1, "open", [1]), .stale)
    try await store.apply(.restart(1))
    try await store.expectMemory(1, [:])
    let again = try await store.claimOne()
    try await store.expectMemory(1, [:])
    try await store.remember(again, named: "step", value: [3])
    try await store.expectMemory(1, ["step": [3]])
    try await store.apply(.succeed(other, at: .second(2), retains: false))
    try await store.expectMemory(2, [:])
  }

  private static func checkMemoryAfterOtherChanges(in store: StoreProbe) async throws {
    let target = TaskTarget.unclaimed(.numbered(1))
    var lease = try await store.startTask(.numbered(1))
    let ends: [(Lease) -> TaskChange] = [
      { .retry($0, availableDate: .second(0), retryCount: 1, failure: .at(1)) }, { .release($0) },
      { .pause(.claimed($0)) }, { .park($0, failure: .at(1)) },
      { .reschedule(.claimed($0), availableDate: .second(0)) },
      { .suspend($0, until: 0) }, { .restart(.claimed($0), availableDate: .second(0)) },
      { .abandon($0, failure: .at(2), retains: true) },
      { .cancel(.claimed($0), at: .second(3), retains: true) },
    ]
    for end in ends {
      let change = end(lease)
      try await store.apply(change)
      try await store.expectMemory(1, ["step": [1, 2]])
      let size = try await store.task(1).memorySize
      try store.expect("the size of the memory", size, 6)
      switch change {
      case .move(_, let move) where move.kind == .pause:
        try await store.apply(.update(.numbered(1), TaskUpdate(tags: ["t"])))
        try await store.apply(.resume(.numbered(1)))
      case .move(_, let move) where move.kind == .park: try await store.apply(.unpark(name: "A"))
      case .end:
        try await store.apply(.complete(1, "step", [1]), .stale)
        try await store.apply(.restart(1))
      default: break
      }
      try await store.expectMemory(1, ["step": [1, 2]])
      lease = try await store.claimOne()
    }
    try await store.apply(.release(lease))
    for change: TaskChange in [
      .reschedule(target, availableDate: .second(5)), .pause(target),
      .restart(target, availableDate: .second(5)), .cancel(1),
    ] {
      try await store.apply(change)
      try await store.expectMemory(1, ["step": [1, 2]])
    }
  }

  private static func checkMemoryAfterRemoval(in store: StoreProbe) async throws {
    let leaves: [[(Lease) -> TaskChange]] = [
      [{ .succeed($0, at: .second(1), retains: false) }],
      [{ .abandon($0, failure: .at(1), retains: false) }],
      [{ .cancel(.claimed($0), at: .second(1), retains: false) }],
      [{ .release($0) }, { _ in .cancel(1, retains: false) }],
      [{ .abandon($0, failure: .at(1), retains: true) }, { .remove($0.id) }],
      [
        { .abandon($0, failure: .at(1), retains: true) },
        { _ in .prune(.abandoned, endedBefore: nil, keepingLatest: 0, now: .second(2)) },
      ],
      [
        { .cancel(.claimed($0), at: .second(1), retains: true) },
        { _ in .prune(.cancelled, endedBefore: .second(9), keepingLatest: nil, now: .second(2)) },
      ],
    ]
    for changes in leaves {
      let lease = try await store.startTask(.numbered(1), open: "open")
      for change in changes { try await store.apply(change(lease)) }
      try await store.expectTasks([])
      try await store.expectMemory(1, [:])
      try await store.apply(.complete(1, "open", [1]), .stale)
      try await store.insert(.numbered(1))
      try await store.expectMemory(1, [:])
      try await store.expect(1, is: .numbered(1))
      try await store.apply(.complete(1, "open", [1]), .stale)
      try await store.apply(.cancel(1, retains: false))
    }
    // Removing task 2 also removes task 3, which was cancelled because of task 2.
    let lease = try await store.startTask(.numbered(2))
    try await store.insert(.numbered(3).after(2))
    let cancel = TaskChange.cancel(.claimed(lease), at: .second(1), retains: true)
    try await store.apply(cancel, .cascading(to: 3))
    try await store.apply(.remove(.numbered(2)), .cascading(to: 3))
    try await store.insert(.numbered(2), .numbered(3))
    try await store.expectMemory(2, [:])
    try await store.expectMemory(3, [:])
  }

  private static func checkMemoryAfterRestart(in store: StoreProbe) async throws {
    var lease = try await store.startTask(.numbered(1), open: "open")
    func restart(_ target: TaskTarget, forgets: Bool) async throws {
      try await store.apply(.restart(target, availableDate: .second(0), forgets: forgets))
      let size = forgets ? 0 : 10
      try await store.expectMemory(1, forgets ? [:] : ["step": [1, 2], "open": []])
      try await store.expect(1, is: .numbered(1).inState(.waiting, remembering: size))
      lease = try await store.claimOne()
      guard forgets else { return }
      try await store.remember(lease, named: "step", value: [1, 2])
      try await store.remember(lease, named: "open", value: [])
    }
    for forgets in [false, true] {
      try await restart(.claimed(lease), forgets: forgets)
      try await store.apply(.abandon(lease, failure: .at(1), retains: true))
      try await restart(.unclaimed(.numbered(1)), forgets: forgets)
      try await store.apply(.suspend(lease))
      try await restart(.unclaimed(.numbered(1)), forgets: forgets)
      try await store.apply(.pause(.claimed(lease)))
      try await restart(.unclaimed(.numbered(1)), forgets: forgets)
    }
    // A restart that is stale, or has no effect, forgets nothing.
    let target = TaskTarget.unclaimed(.numbered(1))
    try await store.apply(.restart(target, availableDate: .second(0), forgets: true), .stale)
    try await store.apply(.release(lease))
    let old = TaskTarget.claimed(lease)
    try await store.apply(.restart(old, availableDate: .second(0), forgets: true), .stale)
    try await store.expectMemory(1, ["step": [1, 2], "open": []])
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    let twin = try await store.startTask(.numbered(2, priority: 1, key: "k"))
    try await store.apply(.abandon(twin, failure: .at(1), retains: true))
    try await store.insert(.numbered(3, at: 60, key: "k"))
    try await store.apply(
      .restart(.unclaimed(.numbered(2)), availableDate: .second(0), forgets: true),
      .duplicate(of: .numbered(3))
    )
    try await store.expectMemory(2, ["step": [1, 2]])
  }

  private static func checkMemoryAfterCascades(in store: StoreProbe) async throws {
    // Task 2 starts before task 1, its dependency, is restarted.
    try await store.insert(.numbered(1), TaskRecord.numbered(2, priority: 1).after(1))
    try await store.apply(
      .succeed(try await store.claimExactly(1)[0], at: .second(1), retains: true),
      .cascading()
    )
    let lease = try await store.claimExactly(2)[0]
    try await store.remember(lease, named: "step", value: [1])
    try await store.apply(.release(lease))
    try await store.apply(.restart(1), .cascading())
    let first = try await store.claimExactly(1)[0]
    try await store.remember(first, named: "own", value: [2])
    try await store.apply(.abandon(first, failure: .at(2), retains: true), .cascading(to: 2))
    try await store.expectMemory(2, ["step": [1]])
    try await store.apply(
      .restart(.unclaimed(.numbered(1)), availableDate: .second(0), forgets: true),
      .cascading(to: 2)
    )
    try await store.expectMemory(1, [:])
    try await store.expectMemory(2, ["step": [1]])
    try await store.expect(
      2,
      is: TaskRecord.numbered(2, priority: 1).after(1).with {
        $0.memorySize = 5
      }
    )
  }

  private static func checkHolderWithMemoryStays(in store: StoreProbe) async throws {
    let lease = try await store.startTask(.numbered(1, key: "k"))
    try await store.insert(.numbered(2, key: "k"))
    try await store.apply(
      .retry(lease, availableDate: .second(10), retryCount: 1, failure: .at(1))
    )
    let holder = TaskRecord.numbered(1, at: 10, key: "k", from: 1).with { record in
      record.memorySize = 6
      record.retryCount = 1
      record.isPostponed = true
      record.note(.at(1))
    }
    try await store.expect(1, is: holder)
    try await store.expect(2, is: TaskRecord.numbered(2, key: "k").with { $0.keyRole = .successor })
    try store.expect(try await store.claim(at: 9), [])
    try await checkReplacedSuccessors(of: holder, in: store)
  }

  /// Checks that a new task replaces the successor, and never the holder, in each state of the
  /// holder.
  private static func checkReplacedSuccessors(
    of holder: TaskRecord,
    in store: StoreProbe
  ) async throws {
    let third = TaskRecord.numbered(3, key: "k", payload: 33)
    try await store.apply(.insert(third, onDuplicate: .replace), .replaced(.numbered(2)))
    try await store.apply(.cancel(2, retains: false))
    var number = 4
    for change: TaskChange in [.pause(.unclaimed(.numbered(1))), .resume(.numbered(1))] {
      try await store.apply(change)
      let next = TaskRecord.numbered(number, key: "k")
      try await store.apply(.insert(next, onDuplicate: .keep), .duplicate(of: .numbered(1)))
      try await store.insert(next, onDuplicate: .replace)
      try await store.expect(number, is: next.with { $0.keyRole = .successor })
      try await store.apply(.cancel(number, retains: false))
      number += 1
    }
    let again = try await store.claimExactly(1, at: 10)[0]
    try await store.apply(.suspend(again))
    try await store.insert(.numbered(number, key: "k"), onDuplicate: .replace)
    try await store.expect(
      1,
      is: holder.with { record in
        record.state = .suspended
        record.availableDate = .distantFuture
        record.countedFrom = nil
        record.isPostponed = false
      }
    )
    try await store.apply(
      .restart(.unclaimed(.numbered(1)), availableDate: .second(0), forgets: true)
    )
    let forgetful = try await store.claimExactly(1)[0]
    // The holder now remembers nothing, so it is superseded.
    try await store.apply(
      .retry(forgetful, availableDate: .second(10), retryCount: 1, failure: nil),
      .superseded(by: .numbered(number))
    )
  }
}
