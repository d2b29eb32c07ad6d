import SteadfastQueue
import SystemFoundation

/// Requirements about tasks that are performed one at a time, in order.
extension PersistenceConformance.Requirement {
  static let orderKeys: [Self] = [
    Self(
      "order-key.one",
      "Tasks with the same order key are claimed one at a time, in the order of insertion, whatever "
        + "their names, priorities and dates.",
      check: checkTasksAreClaimedOneAtATime
    ),
    Self(
      "order-key.held-up",
      "The first task with an order key blocks the others while it waits for a date or a retry, and "
        + "while it is parked or paused. It does not block tasks with other keys.",
      check: checkFirstTaskBlocksOthers
    ),
    Self(
      "order-key.ended",
      "After the first task with an order key has ended in any way, or was removed, the next one is "
        + "claimed.",
      check: checkNextTaskAfterEnd
    ),
    Self(
      "order-key.restart",
      "A restarted task keeps its position among the tasks with its order key, but waits for a task "
        + "that is already running.",
      check: checkOrderOfRestartedTask
    ),
    Self(
      "order-key.holds",
      "If a task that blocks its order on failure ends without success and is retained, the others "
        + "wait until it is restarted or removed. Pruning does not remove it.",
      check: checkBlockingOnFailure
    ),
    Self(
      "reopen.order-keys",
      "After the store is reopened, the order of each key is the same.",
      .reopened,
      check: checkOrderKeysAfterReopening
    ),
  ]

  private static let names = ["A": 1000, "B": 1000]

  /// Claims tasks named A or B, expects exactly the one with this number, and returns its lease.
  private static func claimOnly(
    _ number: Int,
    in store: StoreProbe,
    at seconds: Double = 100
  ) async throws -> Lease {
    let claim = try await store.claim(names: names, at: seconds)
    try store.expect(claim, [number])
    return claim.tasks[0].lease
  }

  private static func checkTasksAreClaimedOneAtATime(in store: StoreProbe) async throws {
    try await store.insert(
      .numbered(9, at: 50, order: "k"),
      .numbered(2, name: "B", priority: 5, at: 10, order: "k"),
      .numbered(5, priority: .max, order: "k")
    )
    try await store.insert(.numbered(1, order: "K"), .numbered(3, order: "other"))
    let claim = try await store.claim(names: names, at: 100)
    try store.expect(claim, [1, 3, 9])
    try store.expect(try await store.claim(names: names, at: 100), [])
    try await store.apply(.succeed(claim.tasks[2].lease, at: .second(1), retains: false))
    let second = try await claimOnly(2, in: store)
    try await store.apply(.succeed(second, at: .second(2), retains: true))
    _ = try await claimOnly(5, in: store)
  }

  private static func checkFirstTaskBlocksOthers(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, at: 90, order: "k"), .numbered(2, order: "k"))
    try await store.insert(.numbered(3), .numbered(4, order: "other"))
    let others = try await store.claim(at: 0)
    try store.expect(others, [3, 4])
    try store.expectNextDate(others, by: 90, at: 0)
    var lease = try await claimOnly(1, in: store, at: 90)
    try await store.apply(
      .retry(lease, availableDate: .second(200), retryCount: 1, failure: .at(1))
    )
    let claim = try await store.claim(at: 199)
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: 200, at: 199)
    lease = try await claimOnly(1, in: store, at: 200)
    try await store.apply(.park(lease, failure: .at(2)))
    try store.expect(try await store.claim(at: 200), [])
    try await store.apply(.unpark(name: "A"))
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try store.expect(try await store.claim(at: 200), [])
    try await store.apply(.resume(.numbered(1)))
    lease = try await claimOnly(1, in: store, at: 200)
    try await store.apply(.release(lease))
    // A task that is not first in its order can be controlled like any other task.
    let later = TaskChange.reschedule(.unclaimed(.numbered(2)), availableDate: .second(1))
    try await store.apply(later)
    try await store.apply(.update(.numbered(2), TaskUpdate(priority: 9)))
    _ = try await claimOnly(1, in: store, at: 200)
    try store.expect(try await store.claim(at: 200), [])
  }

  private static func checkNextTaskAfterEnd(in store: StoreProbe) async throws {
    for number in 1...8 {
      try await store.insert(.numbered(number, order: "key \(number)"))
      try await store.insert(.numbered(10 + number, order: "key \(number)"))
    }
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), Array(1...8))
    let date = Date.second(1)
    try await store.apply(.succeed(leases[0], at: date, retains: true))
    try await store.apply(.succeed(leases[1], at: date, retains: false))
    try await store.apply(.abandon(leases[2], failure: .at(1), retains: true))
    try await store.apply(.abandon(leases[3], failure: .at(1), retains: false))
    try await store.apply(.cancel(.claimed(leases[4]), at: date, retains: true))
    try await store.apply(.release(leases[5]))
    try await store.apply(.cancel(.unclaimed(.numbered(6)), at: date, retains: false))
    // Cancelling a task that is not first in its order does not block the order.
    try await store.apply(.cancel(.unclaimed(.numbered(17)), at: date, retains: true))
    try store.expect(try await store.claim(), [11, 12, 13, 14, 15, 16])
    try await store.insert(.numbered(27, order: "key 7"), .numbered(28, order: "key 8"))
    try await store.apply(.succeed(leases[6], at: date, retains: false))
    try await store.apply(.succeed(leases[7], at: date, retains: false))
    try store.expect(try await store.claim(), [18, 27])
  }

  private static func checkOrderOfRestartedTask(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number, order: "k")) }
    let first = try await claimOnly(1, in: store)
    try await store.apply(.abandon(first, failure: .at(1), retains: true))
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .second(0))
    // The next task has not started, so it waits again.
    try await store.apply(restart)
    let again = try await claimOnly(1, in: store)
    try await store.apply(.abandon(again, failure: .at(1), retains: true))
    let second = try await claimOnly(2, in: store)
    // The next task is already running, and continues.
    try await store.apply(restart)
    try store.expect(try await store.claim(at: 100), [])
    try await store.apply(
      .retry(second, availableDate: .second(0), retryCount: 1, failure: .at(2))
    )
    let third = try await claimOnly(1, in: store)
    try await store.apply(.succeed(third, at: .second(3), retains: false))
    let last = try await claimOnly(2, in: store)
    try await store.apply(.succeed(last, at: .second(4), retains: false))
    _ = try await claimOnly(3, in: store)
  }

  private static func checkBlockingOnFailure(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, order: "k", holds: true), .numbered(2, order: "k"))
    try await store.insert(.numbered(3, order: "l", holds: true), .numbered(4, order: "l"))
    let leases = try await store.claim(names: names).tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), [1, 3])
    try await store.apply(.abandon(leases[0], failure: .at(1), retains: true))
    try await store.apply(.cancel(.claimed(leases[1]), at: .second(1), retains: true))
    try await store.expectTasks([1, 2, 3, 4])
    try store.expect("the state of task 3", try await store.task(3).state, .cancelled)
    for state in [TaskState.abandoned, .cancelled] {
      try await store.apply(
        .prune(state, endedBefore: .second(500), keepingLatest: 0, now: .second(500))
      )
    }
    try await store.expectTasks([1, 2, 3, 4])
    try store.expect(try await store.claim(names: names), [])
    try await store.apply(.restart(.unclaimed(.numbered(1)), availableDate: .second(0)))
    let again = try await claimOnly(1, in: store)
    try await store.apply(.succeed(again, at: .second(2), retains: true))
    _ = try await claimOnly(2, in: store)
    try await store.apply(.remove(.numbered(3)))
    _ = try await claimOnly(4, in: store)
    try await checkOnlyRetainedTasksBlock(in: store)
  }

  private static func checkOnlyRetainedTasksBlock(in store: StoreProbe) async throws {
    // A task that is not retained does not block its order.
    try await store.insert(.numbered(8, order: "n", holds: true), .numbered(9, order: "n"))
    try await store.apply(
      .cancel(.unclaimed(.numbered(8)), at: .second(4), retains: false)
    )
    _ = try await claimOnly(9, in: store)
    try await store.expectTasks([1, 2, 4, 9])
    // Tasks that can't be pruned don't count toward the number to keep.
    try await store.insert(.numbered(5, order: "m", holds: true), .numbered(6), .numbered(7))
    for number in [5, 6, 7] {
      let date = Date.second(Double(number))
      try await store.apply(.cancel(.unclaimed(.numbered(number)), at: date, retains: true))
    }
    try await store.apply(
      .prune(.cancelled, endedBefore: nil, keepingLatest: 1, now: .second(500))
    )
    try await store.expectTasks([1, 2, 4, 5, 7, 9])
    try await store.apply(.remove(.numbered(5)))
    try await store.apply(.remove(.numbered(7)))
    // A task that succeeded does not block its order, and is pruned like any other task.
    try await store.apply(
      .prune(.succeeded, endedBefore: .second(500), keepingLatest: nil, now: .second(500))
    )
    try await store.expectTasks([2, 4, 9])
  }

  private static func checkOrderKeysAfterReopening(in store: StoreProbe) async throws {
    for number in [5, 2, 8] { try await store.insert(.numbered(number, order: "k", holds: true)) }
    try await store.insert(.numbered(1, order: "l", holds: true), .numbered(3, order: "l"))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), [5, 1])
    try await store.apply(.release(leases[0]))
    try await store.apply(.abandon(leases[1], failure: .at(1), retains: true))
    let second = try await store.reopen()
    let five = try await claimOnly(5, in: second)
    try await second.apply(.succeed(five, at: .second(2), retains: true))
    try await second.apply(.restart(.unclaimed(.numbered(5)), availableDate: .second(0)))
    let third = try await second.reopen()
    let again = try await claimOnly(5, in: third)
    try await third.apply(.succeed(again, at: .second(3), retains: false))
    let two = try await claimOnly(2, in: third)
    try await third.apply(.succeed(two, at: .second(3), retains: false))
    _ = try await claimOnly(8, in: third)
    try await third.apply(.remove(.numbered(1)))
    _ = try await claimOnly(3, in: third)
  }
}
