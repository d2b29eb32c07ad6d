import SteadfastQueue
import SystemFoundation

/// Requirements about looking up tasks.
extension PersistenceConformance.Requirement {
  static let lookUps: [Self] = [
    Self(
      "find.filter",
      "Finding, counting and testing for existence agree on the tasks that meet every criterion.",
      check: checkFilters
    ),
    Self(
      "find.put-off",
      "A retried task, with or without a failure, counts as postponed until it is restarted or "
        + "rescheduled.",
      check: checkPostponedTasks
    ),
    Self(
      "find.dates",
      "A look-up by date finds the tasks whose available date is in a range, without its upper "
        + "bound.",
      check: checkLookUpsByDate
    ),
    Self(
      "find.failed",
      "A look-up by date finds the tasks whose last failure is in a range, without its upper bound.",
      check: checkLookUpsByFailure
    ),
    Self(
      "find.pages",
      "A look-up returns tasks in the order of their IDs, starting after the given ID, and at most "
        + "the requested number.",
      check: checkPagesOfLookUps
    ),
    Self(
      "find.newest",
      "A look-up of the newest tasks returns the pages of the oldest tasks in reverse.",
      check: checkPagesOfNewestTasks
    ),
    Self(
      "find.census",
      "A census has the same numbers and dates as the tasks that a look-up returns, for each queue, "
        + "name and state, in the order of their bytes.",
      check: checkCensus
    ),
  ]

  private static func checkLookUpsByFailure(in store: StoreProbe) async throws {
    for number in 1...5 { try await store.insert(.numbered(number)) }
    let leases = try await store.claimExactly(1, 2, 3, 4, 5)
    for (index, seconds) in [10.0, 20, 30].enumerated() {
      try await store.apply(
        .retry(
          leases[index],
          availableDate: .second(40),
          retryCount: 1,
          failure: .at(seconds)
        )
      )
    }
    try await store.apply(.abandon(leases[3], failure: .at(20), retains: true))
    try await store.expectTasks([1, 2, 3, 4], TaskFilter(failedDates: .second(0)..<(.second(100))))
    try await store.expectTasks([2, 4], TaskFilter(failedDates: .second(20)..<(.second(30))))
    try await store.expectTasks([3], TaskFilter(failedDates: .second(30)..<(.second(31))))
    try await store.expectTasks([], TaskFilter(failedDates: .second(31)..<(.second(100))))
    // The last failure counts.
    let lease = try await store.claim(1, at: 40).tasks.first.required().lease
    try await store.apply(
      .retry(lease, availableDate: .second(60), retryCount: 2, failure: .at(50))
    )
    try await store.expectTasks([1], TaskFilter(failedDates: .second(50)..<(.second(51))))
    try await store.expectTasks([], TaskFilter(failedDates: .second(10)..<(.second(11))))
  }

  private static func checkFilters(in store: StoreProbe) async throws {
    _ = try await insertTaskOfEachState(in: store)
    try await store.insert(
      .numbered(7, name: "B", tags: ["red", "large"]),
      .numbered(8, name: "B", tags: ["blue"]),
      .numbered(9, name: "b", order: "o", requires: ["x", "y"], tags: ["Red"]),
      .numbered(10, name: "B", version: 3)
    )
    try store.expect(try await store.claim(1, names: ["B": 1]), [7])
    let cases: [(TaskFilter, [Int])] = [
      (TaskFilter(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
      (TaskFilter(ids: [.numbered(2), .numbered(8), .numbered(99)]), [2, 8]),
      (TaskFilter(ids: []), []), (TaskFilter(names: []), []), (TaskFilter(states: []), []),
      (TaskFilter(names: ["B", "unknown"]), [7, 8, 10]),
      (TaskFilter(excludedNames: ["A", "b"]), [7, 8, 10]),
      (TaskFilter(names: ["A", "B"], excludedNames: ["A"]), [7, 8, 10]),
      (TaskFilter(states: [.running, .parked]), [2, 7]),
      (TaskFilter(states: [.waiting]), [1, 8, 9, 10]), (.unfinished, [1, 2, 3, 7, 8, 9, 10]),
      (.deadLetters, [5]), (TaskFilter(states: [.succeeded, .cancelled, .paused]), [3, 4, 6]),
      (TaskFilter(uniqueKeys: ["key 2", "key 5", "key 99"]), [2, 5]),
      (TaskFilter(uniqueKeys: []), []), (TaskFilter(tags: []), []),
      (TaskFilter(tags: ["red"]), [7]), (TaskFilter(tags: ["large", "blue"]), [7, 8]),
      (TaskFilter(names: ["A"], states: [.parked], uniqueKeys: ["key 2", "key 3"]), [2]),
      (TaskFilter(ids: [.numbered(7)], names: ["A"]), []),
      (TaskFilter(ids: [.numbered(7)], states: [.waiting]), []),
      (TaskFilter(names: ["B"], tags: ["blue", "Red"]), [8]),
      (TaskFilter(orderKeys: ["o", "p"]), [9]), (TaskFilter(orderKeys: ["O"]), []),
      (TaskFilter(unmetBy: []), [9]), (TaskFilter(unmetBy: ["x"]), [9]),
      (TaskFilter(unmetBy: ["x", "y", "z"]), []),
      (TaskFilter(unhandledBy: [:]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
      (TaskFilter(unhandledBy: ["A": 1, "B": 2, "b": 1]), [10]),
      (TaskFilter(unhandledBy: ["A": 1, "B": 3, "b": 0]), [9]),
      (TaskFilter(unhandledBy: ["A": 1, "B": .max, "b": 1]), []),
      (TaskFilter(unhandledBy: ["B": 3]), [1, 2, 3, 4, 5, 6, 9]),
      (TaskFilter(names: ["B"], states: [.waiting], unhandledBy: ["A": 1, "B": 2]), [10]),
    ]
    for (filter, numbers) in cases {
      try await store.expectTasks(numbers, filter)
      try store.expect("the count", try await store.count(filter), numbers.count)
      let isAny = try await store.contains(filter)
      try store.expect("whether there is any", isAny, !numbers.isEmpty)
    }
  }

  private static func checkPostponedTasks(in store: StoreProbe) async throws {
    for number in 1...4 { try await store.insert(.numbered(number)) }
    try await store.insert(.numbered(5, at: 500))
    let leases = try await store.claim().tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), [1, 2, 3, 4])
    try await store.apply(
      .retry(leases[0], availableDate: .second(60), retryCount: 1, failure: .at(1))
    )
    try await store.apply(
      .retry(leases[1], availableDate: .second(70), retryCount: 0, failure: nil)
    )
    try await store.apply(.release(leases[2]))
    try await store.apply(.park(leases[3], failure: .at(2)))
    try await store.expectTasks([1, 2], .retrying)
    try await store.expectTasks([3, 4, 5], TaskFilter(isPostponed: false))
    let released = try await store.claimOne(at: 55)
    try store.expect("the claimed task", released.id.number, 3)
    try await store.apply(.succeed(released, at: .second(56), retains: false))
    let retried = try await store.claimOne(at: 60)
    try await store.expectTasks([1], TaskFilter(states: [.running], isPostponed: true))
    try await store.apply(.release(retried))
    try await store.apply(.pause(.unclaimed(.numbered(1))))
    try await store.apply(.resume(.numbered(1)))
    try await store.expectTasks([1, 2], .retrying)
    try await store.apply(.reschedule(.unclaimed(.numbered(1)), availableDate: .second(90)))
    try await store.expectTasks([2], .retrying)
    try await store.apply(.restart(.unclaimed(.numbered(2)), availableDate: .second(90)))
    try await store.expectTasks([], .retrying)
    try store.expect("the count", try await store.count(TaskFilter(isPostponed: false)), 4)
  }

  private static func checkLookUpsByDate(in store: StoreProbe) async throws {
    for number in 1...5 { try await store.insert(.numbered(number, at: 10 * Double(number))) }
    let cases: [(from: Double, to: Double, found: [Int])] = [
      (20, 40, [2, 3]), (-1e9, 1e9, [1, 2, 3, 4, 5]), (20, 20, []), (20.5, 29.5, []), (50, 60, [5]),
    ]
    for (from, to, numbers) in cases {
      let filter = TaskFilter(availableDates: .second(from)..<(.second(to)))
      try await store.expectTasks(numbers, filter)
      try store.expect("the count", try await store.count(filter), numbers.count)
    }
    let some = TaskFilter(
      ids: [.numbered(3), .numbered(5)],
      availableDates: .second(0)..<(.second(50))
    )
    try await store.expectTasks([3], some)
  }

  private static func checkPagesOfLookUps(in store: StoreProbe) async throws {
    let ids = try await insertTasksWithUnusualIDs(in: store)
    try store.expect("the tasks", try await store.tasks().map(\.id), ids)
    var found: [TaskID] = []
    while found.count < ids.count {
      let page = try await store.tasks(after: found.last, limit: 4).map(\.id)
      let expected = ids.dropFirst(found.count).prefix(4)
      try store.expect("the page", page, Array(expected))
      found += page
    }
    try store.expect("the last page", try await store.tasks(after: ids.last).map(\.id), [])
    try store.expect("the page with the limit 0", try await store.tasks(limit: 0).map(\.id), [])
    // The ID after which a page starts need not belong to a task that matches the filter.
    let after = TaskID(high: 1, low: 2)
    let filter = TaskFilter(states: [.waiting])
    let rest = try await store.tasks(filter, after: after, limit: 2).map(\.id)
    try store.expect("the page", rest, Array(ids.filter { $0 > after }.prefix(2)))
    let one = try await store.tasks(TaskFilter(ids: [ids[3]]), after: ids[3]).map(\.id)
    try store.expect("the page", one, [])
  }

  private static func checkPagesOfNewestTasks(in store: StoreProbe) async throws {
    let ids = Array(try await insertTasksWithUnusualIDs(in: store).reversed())
    let filters = [
      TaskFilter(), TaskFilter(states: [.waiting]), TaskFilter(ids: Set(ids)),
      TaskFilter(names: ["A", "B"], states: TaskState.unfinished),
    ]
    for filter in filters {
      var found: [TaskID] = []
      while found.count < ids.count {
        let page = try await store.tasks(filter, after: found.last, limit: 4, newestFirst: true)
        let expected = ids.dropFirst(found.count).prefix(4)
        try store.expect("the page", page.map(\.id), Array(expected))
        found += page.map(\.id)
      }
      let last = try await store.tasks(filter, after: ids.last, newestFirst: true)
      try store.expect("the last page", last.map(\.id), [])
    }
    let after = TaskID(high: 1, low: 2)
    let rest = try await store.tasks(after: after, limit: 2, newestFirst: true).map(\.id)
    try store.expect("the page", rest, Array(ids.filter { $0 < after }.prefix(2)))
    let none = try await store.tasks(limit: 0, newestFirst: true).map(\.id)
    try store.expect("the page with the limit 0", none, [])
  }

  private static func checkCensus(in store: StoreProbe) async throws {
    try await store.expectCensus(of: [], at: .second(0))
    _ = try await insertTaskOfEachState(in: store)
    // These tasks are claimed later; the last two stay suspended.
    for number in 11...16 { try await store.insert(.numbered(number, name: "B")) }
    let leases = try await store.claim(6, names: ["B": 6]).tasks.map(\.lease)
    try store.expect("the claimed tasks", leases.map(\.id.number), Array(11...16))
    try await store.apply(
      .retry(leases[0], availableDate: .second(60), retryCount: 1, failure: .at(1))
    )
    try await store.apply(
      .retry(leases[1], availableDate: .second(20), retryCount: 0, failure: nil)
    )
    try await store.apply(.suspend(leases[2], until: .second(5), awaiting: []))
    try await store.apply(.suspend(leases[3], until: .second(80), awaiting: []))
    for (number, name) in ["e\u{301}", "\u{e9}", "e", "B", "B"].enumerated() {
      let record = TaskRecord.numbered(
        20 + number,
        name: name,
        priority: number - 2,
        at: Double(10 * number),
        version: 1 + number % 2
      )
      try await store.insert(record)
      for (index, queue) in ["\u{e9}", "e\u{301}", "f"].enumerated() {
        let other = TaskRecord.numbered(30 + 10 * number + index, name: name, at: 15)
        try await store.insert(other.replacing(queue: queue))
      }
    }
    // Some tasks are held back by others.
    for number in 81...83 {
      try await store.insert(.numbered(number, name: "C", at: Double(number - 80), order: "o"))
    }
    try await store.insert(
      TaskRecord.numbered(84, name: "C", at: 4).with { $0.dependencies.tasks = [.numbered(81)] }
    )
    for seconds in [-1, 0, 1, 2, 3.5, 4, 5, 15, 20, 59, 60, 100] as [Double] {
      let tasks = try await store.tasks(TaskFilter(queue: nil))
      try await store.expectCensus(of: tasks, at: .second(seconds))
      // A claim may make tasks ready whose dates have come, and the clock may be set back later.
      if seconds == 5 { _ = try await store.claim(1, names: ["C": 1], at: 30) }
    }
  }

  /// Inserts tasks whose IDs are compared by their high halves, then by their low halves, as
  /// unsigned numbers.
  ///
  /// - Returns: The IDs of the tasks, in order.
  private static func insertTasksWithUnusualIDs(in store: StoreProbe) async throws -> [TaskID] {
    let halves: [UInt64] = [0, 1, .max / 2, .max / 2 + 1, .max]
    let ids = halves.flatMap { high in halves.map { TaskID(high: high, low: $0) } }
    for (number, id) in ids.shuffledForCheck().enumerated() {
      let record = TaskRecord(
        id: id,
        name: number % 2 == 0 ? "A" : "B",
        payload: StoredPayload([], format: .binary),
        createdDate: .second(0),
        availableDate: .second(0)
      )
      try await store.apply(.insert(record, onDuplicate: .keep))
    }
    return ids
  }
}

extension Array {
  /// Returns the elements in a different order, which is the same in every check.
  fileprivate func shuffledForCheck() -> [Element] {
    indices.map { self[($0 * 7 + 3) % count] }
  }
}
