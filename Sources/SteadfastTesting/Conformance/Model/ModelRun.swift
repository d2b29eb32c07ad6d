import SteadfastQueue
import SteadfastRetry
import SystemFoundation

/// Performs random steps on a store and on a reference, and compares their results.
struct ModelRun {
  private var store: StoreProbe
  private var reference = ReferenceTable()
  private var leases: [Lease] = []
  /// For each leased task, the check's uptime when its lease started or was last extended.
  private var leaseStarts: [TaskID: Duration] = [:]
  /// All insertions so far, whether they were stored or not.
  private var insertions: [(record: TaskRecord, policy: UniquePolicy)] = []
  /// The tasks that remember something, or did at any time.
  private var remembering: Set<TaskID> = []
  /// The date of the current step; each step has its own date.
  private var now = 0.0

  private var isShared: Bool { store.store.sharing != nil }

  init(_ store: StoreProbe) { self.store = store }

  /// Performs steps, each at a date that depends only on the step's number.
  ///
  /// So a step has the same date after other steps have been left out.
  mutating func perform(_ steps: [(number: Int, step: ModelStep)]) async throws {
    var last = -1
    for (number, step) in steps {
      now += 4 * Double(number - last)
      last = number
      try await perform(step)
      try await compareTasks()
    }
    try await compareValues()
    for state in TaskState.allCases {
      for queue in [nil, "", "other"] {
        let count = try await store.count(TaskFilter(queue: queue, states: [state]))
        let expected = reference.entries.count { entry in
          entry.record.state == state && queue.map { entry.record.queue == $0 } ?? true
        }
        try store.expect("the count", count, expected)
      }
    }
  }

  private mutating func perform(_ step: ModelStep) async throws {
    switch step {
    case .change(let change):
      try await apply([change])
      if case .value = change { try await compareValues() }
    case .batch(let changes): try await apply(changes)
    case .claim(let request): try await claim(request)
    case .unpark(let name, let queue, let version):
      try await apply(.unpark(name: name, queue: queue, below: version))
    case .prune(let state, let age, let count, let queue):
      let date = age.map { Date.second(now - $0) }
      try await apply(
        .prune(
          state,
          endedBefore: date,
          keepingLatest: count,
          now: .second(now),
          queue: queue
        )
      )
    case .rebase(let seconds):
      guard store.store.hasOneClock else { return }
      // Remove the ended tasks: once the clock has gone back, the dates no longer show which of
      // them ended last.
      for queue in ["", "other"] {
        for state: TaskState in [.succeeded, .abandoned, .cancelled] {
          try await apply(
            .prune(
              state,
              endedBefore: nil,
              keepingLatest: 0,
              now: .second(1e9),
              queue: queue
            )
          )
        }
      }
      now -= 4 + seconds
      try await apply(.rebase(.second(now)))
    case .extend(let claim):
      guard isShared, let lease = lease(ofClaim: claim) else { return }
      let start = store.trial.uptime()
      let outcome = try await apply(.extend(lease, for: leaseDuration * 2))
      if outcome == .done { leaseStarts[lease.id] = start }
    case .command(let claim, let new, let expectsCurrent):
      guard isShared, let lease = lease(ofClaim: claim) else { return }
      let old = expectsCurrent ? reference.record(of: lease.id)?.command : nil
      try await apply(.command(lease.id, from: old, to: new))
    case .reopen:
      guard store.trial.reopens else { return }
      store = try await store.reopen()
      try await compareValues()
      if !isShared { reference.interrupt() }
    }
  }

  // MARK: Changes

  @discardableResult
  private mutating func apply(_ change: TaskChange) async throws -> ChangeOutcome? {
    let expected = reference.apply([change])
    try store.expect("the outcome", try await store.apply([change]), expected)
    return expected.first
  }

  private mutating func apply(_ changes: [ModelStep.Change]) async throws {
    var batch = ModelBatch(reference)
    for change in changes {
      // Each change has its own date, so no two tasks end at the same time.
      let date = now + Double(batch.changes.count) / 4
      switch change {
      case .insert(let task):
        let record = TaskRecord.drawn(task, at: date)
        insertions.append((record, task.policy))
        batch.insert(record, onDuplicate: task.policy)
      case .insertAgain(let back):
        guard back < insertions.count else { continue }
        let insertion = insertions[insertions.count - 1 - back]
        batch.insert(insertion.record, onDuplicate: insertion.policy)
      case .end(let claim, let end, let retains, let delay, let names):
        guard var lease = lease(ofClaim: claim) else { continue }
        if Int(delay) % 2 == 0 { lease.command = reference.record(of: lease.id)?.command }
        batch.add(
          .ending(lease, end, retains: retains, at: date, delay: delay, awaiting: names),
          of: lease.id
        )
      case .remember(let claim, let values):
        guard let lease = lease(ofClaim: claim) else { continue }
        batch.remember(values, by: lease)
      case .complete(let task, let name, let value):
        batch.add(.complete(task, name, value), of: .numbered(task))
      case .control(let task, let control, let retains):
        let id = TaskID.numbered(task)
        batch.add(.controlling(id, control, retains: retains, at: date), of: id)
      case .value(let name, let isPresent, let bytes):
        batch.setValue(named: name, expectsPresent: isPresent, to: bytes)
      }
    }
    guard !batch.changes.isEmpty else { return }
    let expected = reference.apply(batch.changes)
    let refusal = ReferenceTable.firstRefusal(of: batch.changes, expected)
    let found = try await store.apply(batch.changes, durability: .relaxed)
    for (index, (found, expected)) in zip(found, expected).enumerated() where found != expected {
      // A store need not examine the changes after the insertion that refuses the batch.
      let mayBeAny = expected != .valueDiffers && found == .batchRefused
      if let refusal, refusal < index, mayBeAny { continue }
      try store.expect("outcome \(index + 1)", found.step, expected.step)
    }
  }

  /// Returns the lease at an index among all leases so far; negative indices count from the end.
  private func lease(ofClaim claim: Int) -> Lease? {
    guard !leases.isEmpty else { return nil }
    let index = claim % leases.count
    return leases[index < 0 ? index + leases.count : index]
  }

  // MARK: Claims

  /// The duration of claims: a few steps, or so long that they never expire if the clock can't be
  /// moved.
  private var leaseDuration: Duration {
    .seconds(store.trial.advanceClock == nil ? StoreProbe.longLeaseTime : 30)
  }

  /// Moves the store's clock forward to the date of the step, so that claims expire.
  ///
  /// The store may end an expired claim late, and its clock may run by itself. So the reference
  /// can't know whether a claim that expires at about this date has ended. The method moves the
  /// clock further, until no claim expires near the date.
  private mutating func advanceClock() async throws {
    guard isShared, store.trial.advanceClock != nil else { return }
    var date = max(reference.clock, .second(now))
    let uptime = store.trial.uptime()
    let ends = reference.entries.compactMap { entry in
      entry.leaseEnd.map { end in
        // The call that claims tasks may itself take up to three seconds.
        let advance = 3 + (uptime - leaseStarts[entry.record.id, default: uptime]) / .seconds(1)
        return end - advance...end + store.maxExpiryDelay + 3
      }
    }
    for end in ends.sorted(by: { $0.upperBound < $1.upperBound }) where end.contains(date) {
      date = end.upperBound + 1
    }
    let seconds = date.timeIntervalSince(reference.clock)
    reference.clock = date
    if seconds > 0 { try await store.advanceClock(bySeconds: seconds) }
  }

  /// Claims tasks from the store, and compares them with those that the reference would return.
  private mutating func claim(_ drawn: ClaimRequest) async throws {
    try await advanceClock()
    var request = drawn
    request.now = .second(now)
    request.leaseDuration = isShared ? leaseDuration : nil
    let start = store.trial.uptime()
    let claim = try await store.claim(request)
    request.limit += 1
    let available = reference.claimable(request)
    request.limit -= 1
    let expected = available.prefix(request.limit)
    let found = claim.tasks.map(\.lease.id)
    let isSame = reference.ranks(of: found) == expected.map(\.rank)
    guard isSame, Set(found).count == found.count else {
      throw ConformanceMismatch(
        expected: "the claimed tasks are \(expected.map(\.record.id.number))",
        found: "\(found.map(\.number))"
      )
    }
    for task in claim.tasks {
      reference.lease(task.lease, for: request.leaseDuration)
      leases.append(task.lease)
      leaseStarts[task.lease.id] = start
      let record = reference.record(of: task.lease.id)
      try store.expect(task.record, equals: try record.required())
    }
    try expectNextDate(of: claim, request, hasMore: available.count > request.limit)
  }

  /// Expects that the claim's next date is correct; `hasMore` says that available tasks remain.
  private func expectNextDate(
    of claim: Claim,
    _ request: ClaimRequest,
    hasMore: Bool
  ) throws {
    let isDue = claim.nextDate.map { $0 <= request.now } ?? false
    if hasMore { return try store.expect("whether the next date has come", isDue, true) }
    // A claim that has reached its limit, even a limit of zero, need not look for more tasks.
    if isDue, request.limit <= 0 { return }
    // A store may ignore the dates of tasks that this claim does not accept.
    let dates = reference.waiting.map(\.record).filter { record in
      record.availableDate > request.now && record.queue == request.queue
        && (request.names[record.name] ?? request.otherNames) > 0
        && record.payload.version <= request.version(for: record.name)
        && record.conditions.isSubset(of: request.conditions)
    }.map(\.availableDate)
    let ends = reference.entries.compactMap(\.leaseEnd).map { end in
      request.now + end.timeIntervalSince(reference.clock) + store.maxExpiryDelay
    }
    try store.expectNextDate(claim, by: (dates + ends).min()?.second, at: request.now.second)
  }

  // MARK: Comparing

  private mutating func compareTasks() async throws {
    let found = try await store.tasks(TaskFilter(queue: nil))
    let expected = reference.records
    try store.expect("the tasks", found.map(\.id.number), expected.map(\.id.number))
    for (found, expected) in zip(found, expected) { try store.expect(found, equals: expected) }
    // Sometimes count at a date before or after the dates of the claims.
    let date = Date.second(now + Double(found.count % 3 - 1) * 10)
    try await store.expectCensus(of: found, at: date)
    try await compareMemories()
  }

  /// Compares what the tasks remember.
  private mutating func compareMemories() async throws {
    for entry in reference.entries where !entry.memory.isEmpty {
      remembering.insert(entry.record.id)
    }
    for id in remembering.sorted() {
      var expected = TaskMemory()
      for (name, value) in reference.memory(of: id) { expected[name.text] = value }
      // Read without recording a step; record one only for a difference.
      guard try await store.store.memory(of: id) != expected else { continue }
      try await store.expectMemory(id.number, expected)
    }
  }

  private func compareValues() async throws {
    for name in ModelDrawing.valueNames {
      try await store.expectValue(name, reference.values[ExactText(name)])
    }
    try await store.expectValues(prefix: "", reference.values(prefix: ""))
  }
}

/// Removes elements from a list for which a check fails, as long as the check still fails.
///
/// - Parameters:
///   - elements: the list.
///   - failure: the failure of the check for the list.
///   - failureOf: runs the check for a shorter list, and returns the failure, if there is one.
/// - Returns: the shortest list that was found for which the check fails, with its failure.
package func shrunk<Element, Failure>(
  _ elements: [Element],
  failing failure: Failure,
  by failureOf: ([Element]) async -> Failure?
) async -> ([Element], Failure) {
  var (best, reason) = (elements, failure)
  var size = max(1, elements.count / 2)
  while true {
    var start = 0
    var hasShrunk = false
    while start < best.count {
      var smaller = best
      smaller.removeSubrange(start..<min(start + size, best.count))
      if let failure = await failureOf(smaller) {
        (best, reason, hasShrunk) = (smaller, failure, true)
      } else {
        start += size
      }
    }
    if size > 1 { size /= 2 } else if !hasShrunk { return (best, reason) }
  }
}

/// The requirement that random calls have the same results as with a simple reference store.
extension PersistenceConformance.Requirement {
  static let model: [Self] = [
    Self(
      "model.random",
      "Random calls have the same results and leave the same tasks as with a simple reference.",
      check: checkAnswersAgainstReference
    )
  ]

  private static func checkAnswersAgainstReference(in store: StoreProbe) async throws {
    for number in 0..<max(0, store.trial.randomCases) {
      let seed = store.trial.seed &+ UInt64(number)
      var drawing = ModelDrawing(seed: seed)
      let steps = (0..<max(0, store.trial.callsPerCase)).map {
        (number: $0, step: drawing.drawStep())
      }
      var runs = 0
      guard let failure = await failure(of: steps, in: store, suffix: "\(number)") else { continue }
      let (smallest, smallestFailure) = await shrunk(steps, failing: failure) { steps in
        runs += 1
        return await self.failure(of: steps, in: store, suffix: "\(number)-\(runs)")
      }
      // Run the reduced case again, because the report shows the steps of the last run.
      let last = await self.failure(of: smallest, in: store, suffix: "\(number)-last")
      store.trial.recordStep(
        "(the random case of seed \(seed), reduced to the fewest steps that fail)"
      )
      throw last ?? smallestFailure
    }
    store.trial.forgetSteps()
  }

  /// Performs the steps on a new store, and returns the first error; `nil` if there is none.
  private static func failure(
    of steps: [(number: Int, step: ModelStep)],
    in store: StoreProbe,
    suffix: String
  ) async -> (any Error)? {
    store.trial.forgetSteps()
    var failure: (any Error)?
    do {
      var run = ModelRun(try await store.openEmptyStore(suffix: suffix))
      try await run.perform(steps)
    } catch {
      failure = error
    }
    await store.trial.cleanUp()
    return failure
  }
}
