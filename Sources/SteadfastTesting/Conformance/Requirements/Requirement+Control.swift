import SteadfastQueue
import SystemFoundation

/// Requirements about changes to tasks that are not claimed.
extension PersistenceConformance.Requirement {
  static let control: [Self] = [
    Self(
      "control.cancel",
      "A task that has not ended can be cancelled: it is removed, or retained with the date.",
      check: checkCancellation
    ),
    Self("control.pause", "A waiting or parked task can be paused.", check: checkPausing),
    Self(
      "control.resume",
      "Only a paused task can be resumed. It waits again with its previous date and retries.",
      check: checkResuming
    ),
    Self(
      "control.restart",
      "A task in any state can be restarted. It waits again as if it were new.",
      check: checkRestarting
    ),
    Self(
      "control.expiry",
      "A restart removes the task's expiry date only if that date is not after the new available "
        + "date.",
      check: checkExpiryDateAfterRestart
    ),
    Self(
      "control.reschedule",
      "A task that has not ended can be rescheduled: it gets another date and is no longer "
        + "postponed. Nothing else changes.",
      check: checkRescheduling
    ),
    Self(
      "control.update",
      "An update of a task that has not ended changes the options that the update names, and "
        + "nothing else.",
      check: checkUpdates
    ),
    Self(
      "control.update-place",
      "An updated task keeps its position. If its priority changes, it goes behind the waiting tasks "
        + "with the new priority and the same date.",
      check: checkOrderAfterUpdate
    ),
    Self(
      "control.remove",
      "Only a task that has ended can be removed.",
      check: checkRemoval
    ),
    Self(
      "control.unknown",
      "A change to a task that doesn't exist is stale.",
      check: checkChangesToUnknownTask
    ),
  ]

  /// Inserts one task in each state except running.
  ///
  /// Task 1 is waiting, 2 parked, 3 paused, 4 succeeded, 5 abandoned and 6 cancelled.
  static func insertTaskOfEachState(in store: StoreProbe) async throws -> [TaskRecord] {
    for number in 1...6 {
      try await store.insert(.numbered(number, key: "key \(number)"))
    }
    for (number, task) in try await store.claim(6).tasks.enumerated() {
      let date = Date.second(Double(number + 1))
      try await store.apply(
        .retry(task.lease, availableDate: date, retryCount: 2, failure: .at(0, "offline"))
      )
    }
    let leases = try await store.claim(at: 9).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 6)
    try await store.apply(.release(leases[0]))
    try await store.apply(.park(leases[1], failure: .at(10, "can't be read"), knownVersion: 3))
    try await store.apply(.pause(.claimed(leases[2])))
    try await store.apply(.succeed(leases[3], at: .second(10), retains: true))
    try await store.apply(.abandon(leases[4], failure: .at(11, "no"), retains: true))
    try await store.apply(.cancel(.claimed(leases[5]), at: .second(12), retains: true))
    let records = try await store.tasks()
    let states: [TaskState] = [.waiting, .parked, .paused, .succeeded, .abandoned, .cancelled]
    try store.expect("the states", records.map(\.state), states)
    return records
  }

  /// Makes a change to a task in each state, and expects an effect only on tasks in `states`.
  ///
  /// `leadsTo` returns the expected record after the change, or `nil` if the task is removed.
  private static func checkChange(
    in store: StoreProbe,
    appliesTo states: Set<TaskState>,
    _ change: (TaskID) -> TaskChange,
    leadsTo: (TaskRecord) -> TaskRecord?
  ) async throws {
    for before in try await insertTaskOfEachState(in: store) {
      let applies = states.contains(before.state)
      try await store.apply(change(before.id), applies ? .done : .stale)
      if let expected = applies ? leadsTo(before) : before {
        try await store.expect(before.id.number, is: expected)
      } else {
        try await store.expectTasks([], TaskFilter(ids: [before.id]))
      }
    }
  }

  private static func checkCancellation(in store: StoreProbe) async throws {
    let states: Set<TaskState> = [.waiting, .parked, .paused]
    try await checkChange(in: store, appliesTo: states) {
      .cancel(.unclaimed($0), at: .second(20), retains: false)
    } leadsTo: { _ in
      nil
    }
    let other = try await store.openEmptyStore(suffix: "kept")
    try await checkChange(in: other, appliesTo: states) {
      .cancel(.unclaimed($0), at: .second(20), retains: true)
    } leadsTo: { before in
      before.with { record in
        record.state = .cancelled
        record.finishedDate = .second(20)
      }
    }
    try other.expect(try await other.claim(at: 30), [])
  }

  private static func checkPausing(in store: StoreProbe) async throws {
    try await checkChange(in: store, appliesTo: [.waiting, .parked]) {
      .pause(.unclaimed($0))
    } leadsTo: { before in
      before.with { $0.state = .paused }
    }
    try store.expect(try await store.claim(at: 30), [])
  }

  private static func checkResuming(in store: StoreProbe) async throws {
    try await checkChange(in: store, appliesTo: [.paused]) {
      .resume($0)
    } leadsTo: { before in
      before.with { $0.state = .waiting }
    }
    try store.expect(try await store.claim(at: 30), [1, 3])
  }

  private static func checkRestarting(in store: StoreProbe) async throws {
    let states: Set<TaskState> = [
      .waiting, .parked, .paused, .succeeded, .abandoned, .cancelled,
    ]
    try await checkChange(in: store, appliesTo: states) {
      .restart(.unclaimed($0), availableDate: .second(20.5))
    } leadsTo: { before in
      .numbered(before.id.number, at: 20.5, key: before.uniqueKey, from: 20.5)
    }
    try store.expect(try await store.claim(at: 20.25), [])
    try store.expect(try await store.claim(at: 20.5), [1, 2, 3, 4, 5, 6])
  }

  private static func checkExpiryDateAfterRestart(in store: StoreProbe) async throws {
    for (number, seconds) in [19.5, 20, 20.5].enumerated() {
      try await store.insert(.numbered(number, expires: .second(seconds)))
      let target = TaskTarget.unclaimed(.numbered(number))
      try await store.apply(.restart(target, availableDate: .second(20)))
    }
    try await store.expect(0, is: .numbered(0, at: 20, from: 20))
    try await store.expect(1, is: .numbered(1, at: 20, from: 20))
    try await store.expect(2, is: .numbered(2, at: 20, from: 20, expires: .second(20.5)))
  }

  private static func checkRescheduling(in store: StoreProbe) async throws {
    try await checkChange(in: store, appliesTo: [.waiting, .parked, .paused]) {
      .reschedule(.unclaimed($0), availableDate: .second(20.5), countedFrom: .second(20.25))
    } leadsTo: { before in
      before.with { record in
        record.availableDate = .second(20.5)
        record.countedFrom = .second(20.25)
        record.isPostponed = false
      }
    }
    try store.expect(try await store.claim(at: 20.25), [])
    try store.expect(try await store.claim(at: 20.5), [1])
  }

  private static func checkUpdates(in store: StoreProbe) async throws {
    let full = TaskUpdate(
      payload: StoredPayload([0, 10, 255], format: .binary, version: 3),
      priority: TaskQueue.Priority(rawValue: 7),
      maxRetries: .alwaysRetry,
      usesBackoff: false,
      timeLimit: .milliseconds(250),
      expiryDate: .second(500.25),
      tags: ["ü", "other"]
    )
    try await checkChange(in: store, appliesTo: [.waiting, .parked, .paused]) {
      .update($0, full)
    } leadsTo: { before in
      before.with { $0.apply(full) }
    }
    let first = try await store.task(1)
    try await store.apply(.update(.numbered(1), TaskUpdate()))
    try await store.expect(1, is: first)
    let next = TaskUpdate(maxRetries: .atMost(0), usesBackoff: true, tags: [])
    try await store.apply(.update(.numbered(1), next))
    try await store.expect(1, is: first.with { $0.apply(next) })
    let claim = try await store.claim(at: 30)
    try store.expect(claim, [1])
    try store.expect(claim.tasks[0].record, is: try await store.task(1))
  }

  private static func checkOrderAfterUpdate(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number, priority: 1)) }
    try await store.insert(.numbered(5))
    let unchanged = TaskUpdate(priority: TaskQueue.Priority(rawValue: 1), maxRetries: .atMost(3))
    try await store.apply(.update(.numbered(1), unchanged))
    try await store.apply(.update(.numbered(2), TaskUpdate(priority: .normal)))
    try await store.apply(
      .update(.numbered(2), TaskUpdate(priority: TaskQueue.Priority(rawValue: 1)))
    )
    try await store.apply(
      .update(.numbered(3), TaskUpdate(priority: TaskQueue.Priority(rawValue: -1)))
    )
    try store.expect(try await store.claim(), [1, 4, 2, 5, 3])
  }

  private static func checkRemoval(in store: StoreProbe) async throws {
    try await checkChange(in: store, appliesTo: [.succeeded, .abandoned, .cancelled]) {
      .remove($0)
    } leadsTo: { _ in
      nil
    }
    try await store.expectTasks([1, 2, 3])
  }

  private static func checkChangesToUnknownTask(in store: StoreProbe) async throws {
    let id = TaskID.numbered(1)
    for change: TaskChange in [
      .cancel(.unclaimed(id), at: .second(1), retains: true), .pause(.unclaimed(id)), .resume(id),
      .restart(.unclaimed(id), availableDate: .second(1)),
      .reschedule(.unclaimed(id), availableDate: .second(1)),
      .update(id, TaskUpdate(priority: .normal)), .remove(id),
    ] {
      try await store.apply(change, .stale)
    }
    try await store.expectTasks([])
  }
}
