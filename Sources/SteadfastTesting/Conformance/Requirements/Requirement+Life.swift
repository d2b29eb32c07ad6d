import SteadfastQueue

/// Requirements about opening, closing and destroying a store.
extension PersistenceConformance.Requirement {
  static let life: [Self] = [
    Self("life.empty", "A new store is empty.", check: checkNewStoreIsEmpty),
    Self(
      "life.open-again",
      "Opening a store that is open changes nothing, and interrupts no task.",
      check: checkOpeningAgain
    ),
    Self(
      "life.cancelled-caller",
      "A call completes even if the Swift task that makes it is cancelled.",
      check: checkCallsOfCancelledTask
    ),
    Self(
      "life.close",
      "After a store is closed, its calls throw.",
      .reopened,
      check: checkCallsAfterClosing
    ),
    Self(
      "life.destroy",
      "After a store is destroyed, its calls throw.",
      check: checkCallsAfterDestruction
    ),
    Self(
      "life.destroyed-data",
      "After a store is destroyed, even with running tasks, the next store at its place is empty.",
      .reopened,
      check: checkDataAfterDestruction
    ),
    Self(
      "life.destroyed-anytime",
      "A store can also be destroyed before it is opened and after it was closed. Destroying it "
        + "again does nothing.",
      .reopened,
      check: checkDestructionAtAnyTime
    ),
  ]

  private static func checkNewStoreIsEmpty(in store: StoreProbe) async throws {
    try await store.expectTasks([])
    try store.expect("the count", try await store.count(), 0)
    let claim = try await store.claim(otherNames: 9)
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: nil, at: 0)
  }

  private static func checkOpeningAgain(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let lease = try await store.claim(1).tasks.first.required().lease
    store.recordStep("open")
    try await store.store.open()
    try await store.expect(1, is: .numbered(1).with { $0.state = .running })
    try store.expect(try await store.claim(), [2])
    try await store.apply(.succeed(lease, at: .second(1), retains: false))
    try await store.expectTasks([2])
  }

  private static func checkCallsOfCancelledTask(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    store.recordStep("in a task that is cancelled:")
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.cancelAll()
      group.addTask {
        try await store.insert(.numbered(2))
        let claim = try await store.claim(1)
        try store.expect(claim, [1])
        try await store.apply(.succeed(claim.tasks[0].lease, at: .second(1), retains: true))
        try store.expect("the count", try await store.count(), 2)
        try await store.expectTasks([1, 2])
      }
      try await group.waitForAll()
    }
    store.recordStep("in a task that is not cancelled:")
    try await store.expectTasks([1], TaskFilter(states: [.succeeded]))
    try await store.expectTasks([2], TaskFilter(states: [.waiting]))
  }

  private static func expectEveryCallThrows(in store: StoreProbe) async throws {
    try await store.expectError("apply") {
      try await store.apply([.insert(.numbered(9), onDuplicate: .keep)])
    }
    try await store.expectError("claim") { try await store.claim() }
    try await store.expectError("tasks") { _ = try await store.tasks() }
    try await store.expectError("count") { _ = try await store.count() }
    try await store.expectError("value") { _ = try await store.value(named: "a") }
  }

  private static func checkCallsAfterClosing(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    store.recordStep("close")
    try await store.store.close()
    try await expectEveryCallThrows(in: store)
  }

  private static func checkCallsAfterDestruction(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    store.recordStep("destroy")
    try await store.store.destroy()
    try await expectEveryCallThrows(in: store)
  }

  private static func checkDataAfterDestruction(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2))
    try store.expect(try await store.claim(1), [1])
    store.recordStep("destroy, and open again")
    try await store.store.destroy()
    let next = try await store.openNextStore()
    try await next.expectTasks([])
    try await next.apply(.insert(.numbered(1, key: "k"), onDuplicate: .reject))
    try next.expect(try await next.claim(), [1])
  }

  private static func checkDestructionAtAnyTime(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    store.recordStep("close, destroy, and open again")
    try await store.store.close()
    try await store.store.destroy()
    let second = try await store.openNextStore()
    try await second.expectTasks([])
    try await second.insert(.numbered(2))
    second.recordStep("close, and destroy a store that was not opened")
    try await second.store.close()
    let unopened = try await store.makeUnopenedStore()
    try await unopened.store.destroy()
    try await expectEveryCallThrows(in: unopened)
    unopened.recordStep("open again, and destroy both earlier stores again")
    let last = try await store.openNextStore()
    try await last.expectTasks([])
    try await last.insert(.numbered(3))
    for earlier in [store, unopened] { try await earlier.store.destroy() }
    try await last.expectTasks([3])
  }
}
