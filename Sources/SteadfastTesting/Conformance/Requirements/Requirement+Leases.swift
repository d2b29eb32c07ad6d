import SteadfastQueue

/// Requirements that a claimed task changes only with its current lease.
extension PersistenceConformance.Requirement {
  static let leases: [Self] = [
    Self(
      "lease.twice",
      "An attempt ends only once: after that, changes with its lease are stale.",
      check: checkAttemptEndsOnce
    ),
    Self(
      "lease.old",
      "While a task is claimed again, every change with the lease of an earlier claim is stale.",
      check: checkOldLease
    ),
    Self(
      "lease.forged",
      "A lease that the store never issued is stale.",
      check: checkForgedLeases
    ),
    Self(
      "lease.unclaimed",
      "A change for unclaimed tasks is stale while a task is claimed.",
      check: checkUnclaimedChangesWhileRunning
    ),
  ]

  /// Returns every change that needs a lease, except an extension of the lease.
  static func changes(with lease: Lease) -> [TaskChange] {
    [
      .succeed(lease, at: .second(9), retains: true),
      .succeed(lease, at: .second(9), retains: false),
      .retry(lease, availableDate: .second(9), retryCount: 9, failure: .at(9)),
      .abandon(lease, failure: .at(9), retains: true),
      .abandon(lease, failure: .at(9), retains: false), .release(lease),
      .park(lease, failure: .at(9)), .cancel(.claimed(lease), at: .second(9), retains: true),
      .cancel(.claimed(lease), at: .second(9), retains: false), .pause(.claimed(lease)),
      .restart(.claimed(lease), availableDate: .second(9)),
      .reschedule(.claimed(lease), availableDate: .second(9)),
      .remember(lease, named: "step", value: [9]),
      .suspend(lease, until: .second(9), awaiting: []),
    ]
  }

  private static func checkAttemptEndsOnce(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 3)
    try await store.apply(.succeed(leases[0], at: .second(1), retains: false))
    try await store.apply(.abandon(leases[1], failure: .at(1), retains: true))
    try await store.apply(
      .retry(leases[2], availableDate: .second(60), retryCount: 1, failure: .at(1))
    )
    let before = try await store.tasks()
    for lease in leases {
      for change in changes(with: lease) { try await store.apply(change, .stale) }
    }
    for record in before { try await store.expect(record.id.number, is: record) }
    try await store.expectTasks([2, 3])
  }

  private static func checkOldLease(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let old = try await store.claimOne()
    try await store.apply(.release(old))
    let present = try await store.claimOne()
    for change in changes(with: old) { try await store.apply(change, .stale) }
    try await store.expect(1, is: .numbered(1).with { $0.state = .running })
    try await store.apply(.succeed(present, at: .second(1), retains: false))
    try await store.expectTasks([])
  }

  private static func checkForgedLeases(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2, at: 60))
    let lease = try await store.claimOne()
    let forged = [
      Lease(id: lease.id, token: lease.token &+ 1),
      Lease(id: .numbered(2), token: lease.token),
      Lease(id: .numbered(3), token: lease.token),
    ]
    for lease in forged {
      for change in changes(with: lease) { try await store.apply(change, .stale) }
    }
    try await store.expect(1, is: .numbered(1).with { $0.state = .running })
    try await store.expect(2, is: .numbered(2, at: 60))
  }

  private static func checkUnclaimedChangesWhileRunning(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let lease = try await store.claimOne()
    let target = TaskTarget.unclaimed(.numbered(1))
    for change: TaskChange in [
      .cancel(target, at: .second(1), retains: false),
      .cancel(target, at: .second(1), retains: true),
      .pause(target), .resume(.numbered(1)), .restart(target, availableDate: .second(1)),
      .reschedule(target, availableDate: .second(1)),
      .update(.numbered(1), TaskUpdate(tags: ["late"])), .remove(.numbered(1)),
    ] {
      try await store.apply(change, .stale)
    }
    try await store.expect(1, is: .numbered(1).with { $0.state = .running })
    try await store.apply(.release(lease))
    try await store.expect(1, is: .numbered(1))
  }
}
