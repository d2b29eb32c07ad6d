import SteadfastQueue

/// Requirements about the order in which tasks are claimed.
extension PersistenceConformance.Requirement {
  static let order: [Self] = [
    Self(
      "order.priority",
      "Tasks with higher priority are claimed first, for all integers.",
      check: checkOrderByPriority
    ),
    Self(
      "order.date",
      "Among tasks of equal priority, those with earlier available dates are claimed first.",
      check: checkOrderByDate
    ),
    Self(
      "order.kept",
      "Among tasks of equal priority and date, those that were stored first are claimed first.",
      check: checkOrderOfInsertion
    ),
    Self(
      "order.retry",
      "A task that is retried goes behind the waiting tasks with the same priority and date.",
      check: checkOrderAfterRetry
    ),
    Self(
      "order.resume",
      "A task that is resumed goes behind the waiting tasks with the same priority and date.",
      check: checkOrderAfterResuming
    ),
    Self(
      "order.restart",
      "A task that is restarted goes behind the waiting tasks with the same priority and date.",
      check: checkOrderAfterRestart
    ),
    Self(
      "order.reschedule",
      "A task that is rescheduled goes behind the waiting tasks with the same priority and date.",
      check: checkOrderAfterRescheduling
    ),
    Self(
      "order.release",
      "A task that is released returns to its previous position among the waiting tasks.",
      check: checkOrderAfterRelease
    ),
  ]

  private static func checkOrderByPriority(in store: StoreProbe) async throws {
    let priorities = [0, .min, 1, .max, -1, .min + 1, .max - 1]
    for (number, priority) in priorities.enumerated() {
      // A later date must not matter for a task of higher priority.
      let seconds = priority > 0 ? 5.0 : 0
      try await store.insert(.numbered(number, priority: priority, at: seconds))
    }
    try store.expect(try await store.claim(4, at: 10), [3, 6, 2, 0])
    try store.expect(try await store.claim(at: 10), [4, 5, 1])
  }

  private static func checkOrderByDate(in store: StoreProbe) async throws {
    for (number, seconds) in [4.0, -5, 2, 3.5, -1e9].enumerated() {
      try await store.insert(.numbered(number, at: seconds))
    }
    try store.expect(try await store.claim(at: 10), [4, 1, 2, 3, 0])
  }

  private static func checkOrderOfInsertion(in store: StoreProbe) async throws {
    // Neither the IDs nor the names are in the order of insertion.
    try await store.insert(.numbered(5), .numbered(2, name: "B"), .numbered(9))
    try await store.insert(.numbered(1, name: "B"))
    try await store.insert(.numbered(7), .numbered(3))
    let names = ["A": 100, "B": 100]
    try store.expect(try await store.claim(2, names: names), [5, 2])
    try store.expect(try await store.claim(names: names), [9, 1, 7, 3])
  }

  private static func checkOrderAfterRetry(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3))
    let lease = try await store.claim(1).tasks.first.required().lease
    try await store.apply(
      .retry(lease, availableDate: .second(0), retryCount: 1, failure: .at(0))
    )
    try await store.insert(.numbered(4))
    try store.expect(try await store.claim(), [2, 3, 1, 4])
  }

  private static func checkOrderAfterResuming(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3))
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try await store.insert(.numbered(4))
    try await store.apply(.resume(.numbered(1)))
    try store.expect(try await store.claim(), [2, 3, 4, 1])
  }

  private static func checkOrderAfterRestart(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3))
    try await store.apply(.restart(.unclaimed(.numbered(1)), availableDate: .second(0)))
    try store.expect(try await store.claim(), [2, 3, 1])
  }

  private static func checkOrderAfterRescheduling(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, at: -5), .numbered(2), .numbered(3))
    try await store.apply(.reschedule(.unclaimed(.numbered(1)), availableDate: .second(0)))
    try store.expect(try await store.claim(), [2, 3, 1])
  }

  private static func checkOrderAfterRelease(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2), .numbered(3), .numbered(4))
    let leases = try await store.claim(3).tasks.map(\.lease)
    try store.expect("the number of claimed tasks", leases.count, 3)
    try await store.apply(.release(leases[2]))
    try await store.apply(.release(leases[0]))
    try store.expect(try await store.claim(), [1, 3, 4])
  }
}

extension Optional {
  /// Returns the value; throws a ``ConformanceMismatch`` if there is none, because a claim returned
  /// too few tasks.
  func required() throws -> Wrapped {
    guard let self else {
      throw ConformanceMismatch(expected: "a task is claimed", found: "none")
    }
    return self
  }
}
