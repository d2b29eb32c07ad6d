import SteadfastQueue
import SystemFoundation

/// Requirements about expired tasks with a unique key.
extension PersistenceConformance.Requirement {
  static let expiredTwins: [Self] = [
    Self(
      "unique.expired",
      "If a task is not running and has expired by the date of a new task with its key, it loses "
        + "its role to the new task, whatever the policy.",
      check: checkExpiredTwins
    ),
    Self(
      "unique.expired-running",
      "A task that is still running after its expiry date keeps its key.",
      check: checkExpiredRunningTask
    ),
    Self(
      "unique.expired-successor",
      "An expired successor loses its role to a new task. It does not supersede a task whose retry "
        + "is due after the successor expires.",
      check: checkExpiredSuccessor
    ),
    Self(
      "unique.displaced",
      "A task that has lost its role can't be updated, and can't be restarted while another task "
        + "holds its key.",
      check: checkTaskThatLostItsRole
    ),
  ]

  /// Expects that the tasks with these numbers have these roles.
  private static func expectRoles(
    _ roles: [Int: UniqueKeyRole?],
    in store: StoreProbe
  ) async throws {
    for (number, role) in roles.sorted(by: { $0.key < $1.key }) {
      let found = try await store.task(number).keyRole
      try store.expect("the role of task \(number)", found, role)
    }
  }

  private static func checkExpiredTwins(in store: StoreProbe) async throws {
    for (offset, policy) in [UniquePolicy.keep, .replace, .reject, .join].enumerated() {
      let (base, name) = (offset * 20, "name \(offset)")
      func task(_ number: Int, created: Double = 0, expires: Date? = nil) -> TaskRecord {
        let key = "key \(number % 10)"
        return .numbered(base + number, name: name, key: key, created: created, expires: expires)
      }
      // One task is parked, one paused, one suspended with a memory, and one waits.
      for number in 1...3 { try await store.insert(task(number, expires: .second(100))) }
      let leases = try await store.claim(names: [name: 9]).tasks.map(\.lease)
      try store.expect("the number of claimed tasks", leases.count, 3)
      try await store.apply(.park(leases[0], failure: .at(1)))
      try await store.apply(.pause(.claimed(leases[1])))
      try await store.apply(.remember(leases[2], named: "step", value: [1]))
      try await store.apply(.suspend(leases[2], until: .distantFuture, awaiting: []))
      try await store.insert(task(4, expires: .second(100)))
      let early = task(14, created: 99.5)
      try await store.apply(.insert(early, onDuplicate: .join), .duplicate(of: task(4).id))
      for number in 1...4 {
        try await store.apply(.insert(task(10 + number, created: 100), onDuplicate: policy))
        try await expectRoles([base + number: nil, base + 10 + number: .holder], in: store)
      }
      let twin = TaskRecord.numbered(base + 19, name: name, key: "key 1", created: 100)
      try await store.apply(.insert(twin, onDuplicate: .keep), .duplicate(of: task(11).id))
      // An expired task is claimed, so that the queue can end it.
      let claim = try await store.claim(names: [name: 9], at: 100)
      try store.expect(claim, [4, 11, 12, 13, 14].map { base + $0 })
    }
  }

  private static func checkExpiredRunningTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k", expires: .second(100)))
    let lease = try await store.claimOne()
    let new = TaskRecord.numbered(2, key: "k", created: 200)
    for policy in [UniquePolicy.reject, .join] {
      try await store.apply(.insert(new, onDuplicate: policy), .duplicate(of: .numbered(1)))
    }
    try await store.insert(new)
    try await expectRoles([1: .holder, 2: .successor], in: store)
    try await store.apply(.release(lease))
    // The holder no longer runs, but a new task is still a duplicate of the successor.
    let third = TaskRecord.numbered(3, key: "k", created: 200)
    try await store.apply(.insert(third, onDuplicate: .keep), .duplicate(of: .numbered(2)))
    try await store.apply(.insert(third, onDuplicate: .join), .duplicate(of: .numbered(2)))
    try await store.apply(.insert(third, onDuplicate: .replace), .replaced(.numbered(2)))
    try store.expect(try await store.claim(at: 200), [1])
  }

  private static func checkExpiredSuccessor(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"))
    var lease = try await store.claimOne()
    try await store.insert(.numbered(2, key: "k", expires: .second(100)))
    let early = TaskRecord.numbered(3, key: "k", created: 99)
    try await store.apply(.insert(early, onDuplicate: .keep), .duplicate(of: .numbered(2)))
    try await store.insert(.numbered(3, key: "k", created: 100, expires: .second(300)))
    try await expectRoles([1: .holder, 2: nil, 3: .successor], in: store)
    try store.expect(try await store.claim(at: 100), [2])
    try await store.apply(
      .retry(lease, availableDate: .second(300), retryCount: 1, failure: .at(200))
    )
    try await expectRoles([1: .holder, 3: .successor], in: store)
    lease = try await store.claim(at: 300).tasks.first.required().lease
    try store.expect("the claimed task", lease.id.number, 1)
    try await store.apply(
      .retry(lease, availableDate: .second(299.5), retryCount: 2, failure: .at(299)),
      .superseded(by: .numbered(3))
    )
    try await expectRoles([2: nil, 3: .holder], in: store)
  }

  private static func checkTaskThatLostItsRole(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k", expires: .second(100)))
    try await store.insert(.numbered(2, key: "k", created: 100))
    let update = TaskUpdate(priority: 5, expiryDate: .second(500))
    try await store.apply(.update(.numbered(1), update), .stale)
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .second(100))
    try await store.apply(restart, .duplicate(of: .numbered(2)))
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try await store.apply(restart, .duplicate(of: .numbered(2)))
    try await expectRoles([1: nil, 2: .holder], in: store)
    try await store.apply(.cancel(.unclaimed(.numbered(2)), at: .second(101), retains: true))
    try await expectRoles([1: nil, 2: nil], in: store)
    try await store.apply(restart)
    try await store.expect(1, is: .numbered(1, at: 100, key: "k", from: 100))
    let third = TaskRecord.numbered(3, key: "k", created: 102)
    try await store.apply(.insert(third, onDuplicate: .keep), .duplicate(of: .numbered(1)))
    try await store.apply(.update(.numbered(1), update))
  }
}
