import SteadfastQueue

/// Requirements about commands for running tasks, which other processes carry out.
extension PersistenceConformance.Requirement {
  static let commands: [Self] = [
    Self(
      "commands.stored",
      "A command is stored with a running task, if the task has the expected command. Look-ups show "
        + "the command, and find tasks by it.",
      .shared,
      check: checkWhichCommandsAreStored
    ),
    Self(
      "commands.refuse",
      "A change that ends an attempt without success is skipped if its lease does not have the task's "
        + "command. Otherwise, it is stored, and the task has no command any longer.",
      .shared,
      check: checkEndsOfCommandedAttempts
    ),
    Self(
      "commands.allow",
      "A task with a command can succeed, its claim can be extended, and it can remember values.",
      .shared,
      check: checkWhatCommandsAllow
    ),
    Self(
      "commands.stay",
      "When the claim of a task with a command expires, the next claim returns the task with the "
        + "command, unless a change has moved, ended or replaced the task.",
      .sharedWithClock,
      check: checkCommandsAfterExpiry
    ),
  ]

  private static func checkWhichCommandsAreStored(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3, at: 100))
    let lease = try await store.claim(1).tasks.first.required().lease
    for command in StoredCommand.allCases {
      try await store.apply(.command(.numbered(1), from: nil, to: command))
      try await store.expect(
        1,
        is: .numbered(1).with { task in
          task.state = .running
          task.command = command
        }
      )
      for other in [nil, .release, .cancel] as [StoredCommand?] where other != command {
        try await store.apply(.command(.numbered(1), from: other, to: .pause), .stale)
      }
      try await store.expectTasks([1], TaskFilter(hasCommand: true))
      try await store.expectTasks([1], TaskFilter(states: [.running], hasCommand: true))
      try await store.expectTasks([2, 3], TaskFilter(hasCommand: false))
      try await store.apply(.command(.numbered(1), from: command, to: nil))
    }
    try await store.expectTasks([], TaskFilter(hasCommand: true))
    try await store.apply(.succeed(lease, at: .second(1), retains: true))
    for number in [1, 2, 3, 4] {
      try await store.apply(.command(.numbered(number), from: nil, to: .cancel), .stale)
    }
    try await store.expectTasks([], TaskFilter(hasCommand: true))
  }

  /// The changes with a lease that end an attempt without success.
  private static func ends(of lease: Lease) -> [TaskChange] {
    changes(with: lease).filter { $0.leaseEndedWithoutSuccess != nil }
  }

  private static func checkEndsOfCommandedAttempts(in store: StoreProbe) async throws {
    let count = ends(of: Lease(id: .numbered(1), token: 1)).count
    for number in 1...count {
      // An order key and a unique key, because stores may have a faster way for other tasks.
      let isPlain = number % 2 == 0
      let task = TaskRecord.numbered(number, key: isPlain ? nil : "\(number)")
      try await store.insert(task)
      var lease = try await store.claim(1).tasks.first.required().lease
      try await store.apply(.command(task.id, from: nil, to: .pause))
      let running = try await store.task(number)
      try await store.apply(ends(of: lease)[number - 1], .commanded(.pause))
      lease.command = .cancel
      try await store.apply(ends(of: lease)[number - 1], .commanded(.pause))
      try await store.expect(number, is: running)
      lease.command = .pause
      try await store.apply(ends(of: lease)[number - 1])
      try await store.expectTasks([], TaskFilter(hasCommand: true))
      _ = try await store.apply([.cancel(.unclaimed(task.id), at: .second(9), retains: false)])
    }
    // A lease may have a command that the task does not have any longer.
    try await store.insert(.numbered(100))
    var lease = try await store.claim(1).tasks.first.required().lease
    lease.command = .pause
    try await store.apply(.release(lease))
  }

  private static func checkWhatCommandsAllow(in store: StoreProbe) async throws {
    for (number, retains) in [(1, true), (2, false)] {
      try await store.insert(.numbered(number))
      let lease = try await store.claimOne()
      try await store.apply(.command(.numbered(number), from: nil, to: .cancel))
      try await store.apply(.extend(lease, for: .seconds(StoreProbe.longLeaseTime)))
      try await store.apply(.remember(lease, named: "step", value: [1]))
      let command = try await store.task(number).command
      try store.expect("the command", command, .cancel)
      try await store.apply(.succeed(lease, at: .second(1), retains: retains))
    }
    try await store.expectTasks([1], TaskFilter(states: [.succeeded], hasCommand: false))
    try await store.expectTasks([1])
  }

  private static func checkCommandsAfterExpiry(in store: StoreProbe) async throws {
    let tasks = (1...4).map { TaskRecord.numbered($0, key: $0 == 4 ? "key" : nil) }
    for task in tasks { try await store.insert(task) }
    try store.expect(try await store.claim(leaseTime: StoreProbe.leaseTime), [1, 2, 3, 4])
    for task in tasks { try await store.apply(.command(task.id, from: nil, to: .cancel)) }
    try await store.advanceClock(bySeconds: StoreProbe.leaseTime + store.maxExpiryDelay)
    // This claim ends the expired claims.
    try store.expect(try await store.claim(1), [1])
    let first = try await store.task(1)
    try store.expect("the command", first.command, .cancel)
    try store.expect("the interruptions", first.interruptionCount, 1)
    try await store.apply(.reschedule(.unclaimed(.numbered(2)), availableDate: .second(-1)))
    try await store.apply(.restart(.unclaimed(.numbered(3)), availableDate: .second(-1)))
    try await store.apply(
      .insert(.numbered(5, key: "key"), onDuplicate: .replace),
      .replaced(.numbered(4))
    )
    try await store.expectTasks([1], TaskFilter(hasCommand: true))
    let claim = try await store.claim()
    try store.expect("the commands", claim.tasks.compactMap(\.record.command), [])
  }
}
