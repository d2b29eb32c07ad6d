import SteadfastQueue
import SystemFoundation

/// Requirements about successors: tasks that wait for another task with their unique key.
extension PersistenceConformance.Requirement {
  static let successors: [Self] = [
    Self(
      "unique.successor",
      "While a task runs, one new task with its unique key waits behind it. Further new tasks with "
        + "the key are skipped, or replace the waiting task.",
      check: checkWaitingSuccessor
    ),
    Self(
      "unique.promoted",
      "After a task has ended in any way, or was removed, its successor is claimed.",
      check: checkPromotedSuccessors
    ),
    Self(
      "unique.released",
      "A running task that is released is claimed again before its successor.",
      check: checkReleasedHolder
    ),
    Self(
      "unique.superseded",
      "If a task fails and has a successor, the task is removed. The successor gets the task's "
        + "retries and failures, and is not claimed before the date of the task's retry.",
      check: checkSupersededHolder
    ),
    Self(
      "unique.restart",
      "A task that has ended can't be restarted while another task holds its key. A restarted task "
        + "holds the key again.",
      check: checkRestartWhileKeyIsHeld
    ),
  ]

  private static func checkWaitingSuccessor(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2, key: "other"))
    try store.expect(try await store.claim(1), [1])
    try await store.insert(.numbered(3, key: "k"))
    let successor = TaskRecord.numbered(3, key: "k").with { $0.keyRole = .successor }
    try await store.expect(3, is: successor)
    try await store.apply(
      .insert(.numbered(4, key: "k"), onDuplicate: .keep),
      .duplicate(of: .numbered(3))
    )
    let last = TaskRecord.numbered(5, priority: 5, key: "k", tags: ["last"])
    try await store.apply(.insert(last, onDuplicate: .replace), .replaced(.numbered(3)))
    try await store.expect(
      3,
      is: successor.with {
        $0.apply(TaskUpdate(payload: last.payload, priority: 5, tags: ["last"]))
      }
    )
    try await store.apply(
      .insert(.numbered(6, key: "k"), onDuplicate: .reject),
      .duplicate(of: .numbered(1))
    )
    try await store.apply(
      .insert(.numbered(6, key: "k"), onDuplicate: .join),
      .duplicate(of: .numbered(1))
    )
    try store.expect(try await store.claim(), [2])
    let claim = try await store.claim()
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: nil, at: 0)
    // Even with the policy `replace`, the first task that is added during an attempt waits.
    try await store.apply(.insert(.numbered(7, key: "other"), onDuplicate: .replace))
    try await store.expectTasks([1, 2, 3, 7])
    // A successor can be controlled like any other task.
    try await store.apply(.cancel(.unclaimed(.numbered(7)), at: .second(1), retains: false))
    try await store.insert(.numbered(8, key: "other"))
    try await store.expectTasks([1, 2, 3, 8])
    try store.expect(try await store.claim(), [])
  }

  private static func checkPromotedSuccessors(in store: StoreProbe) async throws {
    for number in 1...7 { try await store.insert(.numbered(number, key: "key \(number)")) }
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 7)
    for number in 1...7 { try await store.insert(.numbered(10 + number, key: "key \(number)")) }
    let date = Date.second(1)
    try await store.apply(.succeed(leases[0], at: date, retains: true))
    try await store.apply(.succeed(leases[1], at: date, retains: false))
    try await store.apply(.abandon(leases[2], failure: .at(1), retains: true))
    try await store.apply(.abandon(leases[3], failure: .at(1), retains: false))
    try await store.apply(.cancel(.claimed(leases[4]), at: date, retains: true))
    try await store.apply(.release(leases[5]))
    try await store.apply(.cancel(.unclaimed(.numbered(6)), at: date, retains: false))
    try store.expect(try await store.claim(), [11, 12, 13, 14, 15, 16])
    for number in 11...16 {
      let role = try await store.task(number).keyRole
      try store.expect("the role of task \(number)", role, .holder)
    }
    for number in [1, 3, 5] {
      let role = try await store.task(number).keyRole
      try store.expect("the role of task \(number), which has ended,", role, nil)
    }
  }

  private static func checkReleasedHolder(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"))
    let lease = try await store.claimOne()
    try await store.insert(.numbered(2, priority: 9, key: "k"))
    try await store.apply(.release(lease))
    // A new task is a duplicate of the successor, because the successor is performed last.
    try await store.apply(
      .insert(.numbered(3, key: "k"), onDuplicate: .keep),
      .duplicate(of: .numbered(2))
    )
    let claim = try await store.claim()
    try store.expect(claim, [1])
    try await store.apply(.pause(.claimed(claim.tasks[0].lease)))
    try store.expect(try await store.claim(), [])
    try await store.apply(.remove(.numbered(2)), .stale)
    try await store.apply(.resume(.numbered(1)))
    try store.expect(try await store.claim(), [1])
  }

  private static func checkSupersededHolder(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2, key: "late"))
    var leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 2)
    try await store.apply(
      .retry(leases[0], availableDate: .second(5), retryCount: 3, failure: .at(1, "first"))
    )
    leases[0] = try await store.claim(at: 5).tasks.first.required().lease
    try await store.insert(.numbered(3, key: "k"), .numbered(4, at: 90, key: "late"))
    try await store.apply(
      .retry(leases[0], availableDate: .second(50), retryCount: 4, failure: .at(6, "second")),
      .superseded(by: .numbered(3))
    )
    try await store.expect(
      3,
      is: TaskRecord.numbered(3, at: 50, key: "k", from: 6).with { record in
        record.keyRole = .holder
        record.retryCount = 4
        record.isPostponed = true
        record.note(.at(1, "first"))
        record.note(.at(6, "second"))
      }
    )
    // The successor keeps its own date if that is later. A retry without a failure supersedes, too.
    try await store.apply(
      .retry(leases[1], availableDate: .second(60), retryCount: 0, failure: nil),
      .superseded(by: .numbered(4))
    )
    try await store.expectTasks([3, 4])
    try store.expect(try await store.claim(at: 49), [])
    try store.expect(try await store.claim(at: 89), [3])
    try store.expect(try await store.claim(at: 90), [4])
  }

  private static func checkRestartWhileKeyIsHeld(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"))
    let lease = try await store.claimOne()
    try await store.apply(.abandon(lease, failure: .at(1), retains: true))
    try await store.insert(.numbered(2, key: "k"))
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .second(3))
    try await store.apply(restart, .duplicate(of: .numbered(2)))
    let state = try await store.task(1).state
    try store.expect("the state of task 1", state, .abandoned)
    try await store.apply(.cancel(.unclaimed(.numbered(2)), at: .second(2), retains: true))
    try await store.apply(restart)
    let role = try await store.task(1).keyRole
    try store.expect("the role of task 1", role, .holder)
    try await store.apply(
      .insert(.numbered(3, key: "k"), onDuplicate: .keep),
      .duplicate(of: .numbered(1))
    )
    // A waiting task can be restarted, even if other tasks with its key were added later.
    try await store.apply(restart)
    try store.expect(try await store.claim(at: 3), [1])
  }
}
