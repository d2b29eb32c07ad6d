package import SteadfastQueue
package import SystemFoundation

/// A reference implementation of a store, as simple as possible: one list, searched linearly.
package struct ReferenceTable: Sendable {
  package struct Entry: Sendable {
    package var record: TaskRecord
    /// A number that orders tasks with the same priority and date; lower numbers come first.
    ///
    /// Tasks that were unparked together have the same number.
    package var place: Int
    package var lease: Lease?
    /// The date, by the store's clock, at which the claim ends; `nil` in a store with one queue.
    package var leaseEnd: Date?
    /// The date, by the store's clock, at which the claim started or was last extended.
    package var leaseStart: Date?
    /// A number that orders tasks by when they ended; lower numbers ended first.
    package var end = 0
    /// A number that orders tasks with the same order key; a restart does not change it.
    package var number: Int
    /// The values that the task remembers, by the bytes of their names.
    package var memory: [ExactText: [UInt8]] = [:]
  }

  package var entries: [Entry] = []
  /// The store's own clock, which advances only when it is moved.
  package var clock = Date.second(0)
  /// The progress of batches whose followers are not stored yet, by the IDs of the followers.
  ///
  /// A follower may be inserted later in the same call of ``apply(_:)``.
  var earlyBatches: [TaskID: BatchProgress] = [:]
  /// The values, by the bytes of their names.
  package var values: [ExactText: [UInt8]] = [:]
  private var lastPlace = 0

  package init() {}

  func index(of id: TaskID) -> Int? { entries.firstIndex { $0.record.id == id } }

  package func record(of id: TaskID) -> TaskRecord? { index(of: id).map { entries[$0].record } }

  /// All tasks, in the order of their IDs.
  package var records: [TaskRecord] { entries.map(\.record).sorted { $0.id < $1.id } }

  mutating func nextPlace() -> Int {
    lastPlace += 1
    return lastPlace
  }

  package mutating func insert(
    _ record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) -> ChangeOutcome {
    if let index = index(of: record.id) {
      return record.isStored(as: entries[index].record) ? .done : .identityTaken
    }
    var record = record
    record.keyRole = nil
    record.memorySize = 0
    let unmet = unmetDependency(of: record)
    if record.uniqueKey != nil, !record.state.isFinished {
      switch decideRole(of: record, policy: policy) {
      case .role(let role):
        if let unmet { return .unmetDependency(unmet) }
        record.keyRole = role
      case .outcome(let outcome): return outcome
      }
    }
    if let unmet { return .unmetDependency(unmet) }
    record = addToBatch(record)
    let place = nextPlace()
    entries.append(Entry(record: record, place: place, number: place))
    return .done
  }

  package mutating func change(
    _ lease: Lease,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    keepsPlace: Bool = false,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(of: lease.id), entries[index].lease == lease else { return .stale }
    move(index, to: state, retains: retains, at: date, keepsPlace: keepsPlace, note)
    return .done
  }

  /// Changes an unclaimed task that is in one of the states.
  package mutating func change(
    _ id: TaskID,
    in states: Set<TaskState>,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(of: id), states.contains(entries[index].record.state) else {
      return .stale
    }
    move(index, to: state, retains: retains, at: date, keepsPlace: false, note)
    return .done
  }

  private mutating func move(
    _ index: Int,
    to state: TaskState,
    retains: Bool,
    at date: Date?,
    keepsPlace: Bool,
    _ note: (inout TaskRecord) -> Void
  ) {
    guard retains else {
      entries.remove(at: index)
      return
    }
    entries[index].lease = nil
    entries[index].leaseEnd = nil
    entries[index].record.command = nil
    entries[index].record.state = state
    note(&entries[index].record)
    if !keepsPlace { entries[index].place = nextPlace() }
    if state.isFinished {
      entries[index].record.keyRole = nil
      entries[index].record.finishedDate = date
      entries[index].end = entries[index].place
    }
  }

  mutating func remove(at index: Int) { entries.remove(at: index) }

  package mutating func unpark(_ name: String, in queue: String = "", below version: Int? = nil) {
    let place = nextPlace()
    for index in entries.indices {
      let record = entries[index].record
      guard record.state == .parked, record.name.isExactly(name), record.queue.isExactly(queue),
        version.map({ record.parkedVersion ?? .min < $0 }) ?? true
      else { continue }
      entries[index].record.state = .waiting
      entries[index].place = place
    }
  }

  package mutating func extend(_ lease: Lease, for duration: Duration) -> ChangeOutcome {
    guard let index = index(of: lease.id), entries[index].lease == lease else { return .stale }
    let end = clock + duration / .seconds(1)
    entries[index].leaseStart = clock
    entries[index].leaseEnd = end
    entries[index].record.claim?.endDate = end
    return .done
  }

  package mutating func prune(
    _ state: TaskState,
    in queue: String = "",
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) {
    let ended = entries.filter { entry in
      entry.record.state == state && entry.record.queue.isExactly(queue)
        && !entry.record.blocksOrder
        && entry.record.dependencies.cause == nil
        && !(entry.record.uniqueUntil.map { $0 > now } ?? false)
    }.sorted { $0.end < $1.end }
    let surplus = count.map { ended.count - $0 } ?? 0
    let leaving = Set(
      ended.enumerated().prefix { place, entry in
        place < surplus || date.map { (entry.record.finishedDate ?? $0) < $0 } ?? false
      }.map(\.element.record.id)
    )
    for id in leaving { removeAlong(with: id) }
    entries.removeAll { leaving.contains($0.record.id) }
  }
}

// MARK: - Claims

extension ReferenceTable {
  /// Returns the tasks to claim, in order; the store under test provides their leases.
  package mutating func claimable(_ request: ClaimRequest, endsClaims: Bool = true) -> [Entry] {
    if endsClaims {
      interrupt { [clock] in $0.leaseEnd.map { $0 <= clock } ?? false }
    }
    var taken: [ExactText: Int] = [:]
    return Array(
      waiting
        .filter {
          $0.record.availableDate <= request.now && $0.record.queue.isExactly(request.queue)
        }
        .sorted { $0.rank < $1.rank }
        .filter { entry in
          guard entry.record.conditions.isSubset(of: request.conditions),
            entry.record.payload.version <= request.version(for: entry.record.name)
          else { return false }
          let name = ExactText(entry.record.name)
          taken[name, default: 0] += 1
          return taken[name, default: 0] <= request.room(for: name.text)
        }
        .prefix(max(0, request.limit))
    )
  }

  package mutating func lease(_ lease: Lease, for duration: Duration? = nil, by holder: String = "")
  {
    guard let index = index(of: lease.id) else { return }
    entries[index].record.state = .running
    entries[index].lease = lease
    entries[index].leaseStart = clock
    entries[index].leaseEnd = duration.map { clock + $0 / .seconds(1) }
    entries[index].record.claim = entries[index].leaseEnd.map { end in
      TaskClaim(holder: holder, date: clock, endDate: end)
    }
  }

  /// Ends the claims that `isOver` selects, by default all.
  ///
  /// Each of their tasks waits again at its position, with one more interruption.
  package mutating func interrupt(where isOver: (Entry) -> Bool = { _ in true }) {
    for index in entries.indices where entries[index].lease != nil && isOver(entries[index]) {
      entries[index].lease = nil
      entries[index].leaseEnd = nil
      entries[index].record.state = .waiting
      entries[index].record.interruptionCount += 1
    }
  }
}

extension ReferenceTable.Entry {
  /// The position of a task in the order in which available tasks are claimed.
  ///
  /// The task with the lower rank is claimed first.
  package struct Rank: Comparable, Sendable {
    package let priority: Int
    package let availableDate: Date
    package let place: Int

    package static func < (left: Rank, right: Rank) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.availableDate != right.availableDate {
        return left.availableDate < right.availableDate
      }
      return left.place < right.place
    }
  }

  package var rank: Rank {
    Rank(
      priority: record.priority.rawValue,
      availableDate: record.availableDate,
      place: place
    )
  }
}

extension ReferenceTable {
  /// Returns the ranks of these tasks, in the order of `ids`; `nil` for tasks that don't exist.
  ///
  /// Tasks of the same rank may be claimed in any order.
  package func ranks(of ids: [TaskID]) -> [Entry.Rank?] {
    ids.map { id in index(of: id).map { entries[$0].rank } }
  }
}

extension ReferenceTable {
  /// Applies all changes, or none of them if a value differs or an insertion refuses the batch.
  package mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    guard batch.allSatisfy(findsExpectedValue) else { return batch.map { _ in .valueDiffers } }
    let before = self
    defer { earlyBatches = [:] }
    let outcomes = batch.map { change in
      let outcome = applyWithConsequences(change)
      promoteSuccessors()
      return outcome
    }
    guard Self.firstRefusal(of: batch, outcomes) != nil else { return outcomes }
    self = before
    return outcomes.map { outcome in
      switch outcome {
      case .done, .doneWithConsequences, .replaced, .superseded: .batchRefused
      case .duplicate, .unmetDependency, .identityTaken, .stale, .commanded, .batchRefused,
        .valueDiffers:
        outcome
      @unknown default: outcome
      }
    }
  }

  /// Returns the index of the first insertion because of which the batch is refused.
  static func firstRefusal(of batch: [TaskChange], _ outcomes: [ChangeOutcome]) -> Int? {
    zip(batch, outcomes).enumerated().first { _, pair in
      switch pair {
      case (_, .identityTaken), (_, .unmetDependency), (.insert(_, .reject), .duplicate): true
      default: false
      }
    }?.offset
  }

  private mutating func applyWithConsequences(_ change: TaskChange) -> ChangeOutcome {
    guard let before = change.taskID.flatMap(record), affectsOthers(before) else {
      return apply(change)
    }
    let outcome = apply(change)
    guard outcome == .done, let consequences = applyConsequences(of: change, before: before) else {
      return outcome
    }
    return .doneWithConsequences(consequences)
  }

  /// Returns the command because of which a change is skipped; `nil` if it may be made.
  private func command(against change: TaskChange) -> StoredCommand? {
    guard let lease = change.leaseEndedWithoutSuccess,
      let entry = entries.first(where: { $0.lease == lease }),
      let command = entry.record.command, command != lease.command
    else { return nil }
    return command
  }

  private mutating func apply(_ change: TaskChange) -> ChangeOutcome {
    if let command = command(against: change) { return .commanded(command) }
    switch change {
    case .insert(let record, let policy): return insert(record, onDuplicate: policy)
    case .move(let target, let move): return self.move(target, move)
    case .end(let target, let end):
      let outcome = changeState(
        of: target,
        in: Self.unclaimed,
        to: end.state,
        retains: end.retains,
        at: end.date
      ) { $0.addFailure(end.failure) }
      if outcome == .done, end.state == .succeeded { forget(target.id) }
      return outcome
    case .update(let id, let update): return self.update(id, update)
    case .remove(let id):
      return changeState(of: .unclaimed(id), in: Self.ended, to: .waiting, retains: false)
    case .broad(.unpark(let name, let queue, let version)):
      unpark(name, in: queue, below: version)
    case .broad(.prune(let state, let date, let count, let now, let queue)):
      prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .broad(.rebase(let date)): rebase(to: date)
    case .extend(let lease, let duration): return extend(lease, for: duration)
    case .command(let id, let old, let new):
      guard let index = index(of: id), entries[index].record.state == .running,
        entries[index].record.command == old
      else { return .stale }
      entries[index].record.command = new
    case .setValue(let name, _, let bytes): values[ExactText(name)] = bytes
    case .memory(.remember(let lease, let name, let value)):
      return remember(value, named: name, by: lease)
    case .memory(.suspend(let lease, let date, let names, let origin)):
      return suspend(lease, until: date, awaiting: names, countedFrom: origin)
    case .memory(.complete(let id, let name, let value)):
      return complete(id, named: name, with: value)
    @unknown default: break
    }
    return .done
  }

  /// Moves a task, by rules that don't use those of ``TaskMove``.
  private mutating func move(_ target: TaskTarget, _ move: TaskMove) -> ChangeOutcome {
    guard isCurrent(target), let old = record(of: target.id) else { return .stale }
    let (states, next): (Set<TaskState>, TaskState) =
      switch move.kind {
      case .retry, .release: ([.running], .waiting)
      case .park: ([.running], .parked)
      case .pause: ([.running, .waiting, .suspended, .parked], .paused)
      case .resume: ([.paused], .waiting)
      case .restart: (Set(TaskState.allCases), .waiting)
      case .reschedule:
        (
          Self.unclaimed.union([.running]),
          [.parked, .paused].contains(old.state) ? old.state : .waiting
        )
      }
    guard states.contains(old.state) else { return .stale }
    if move.kind == .restart, old.uniqueKey != nil {
      if let holder = holder(insteadOf: old) { return .duplicate(of: holder) }
      if old.keyRole == nil { makeHolder(old.id) }
    }
    if move.kind == .pause, old.state == .suspended { wake(old.id) }
    let keepsPlace = move.kind == .release
    let outcome = changeState(of: target, in: states, to: next, keepsPlace: keepsPlace) { record in
      switch move.kind {
      case .restart: record.move(by: move)
      case .retry, .reschedule:
        record.availableDate = move.availableDate ?? record.availableDate
        record.countedFrom = move.failure?.date ?? move.countedFrom
        record.isPostponed = move.kind == .retry
      case .park: record.parkedVersion = move.knownVersion
      case .release, .pause, .resume: break
      }
      if let count = move.retryCount { (record.retryCount, record.interruptionCount) = (count, 0) }
      record.addFailure(move.failure)
    }
    if move.forgetsMemory { forget(old.id) }
    guard move.kind == .retry, record(of: old.id).map(affectsOthers) == false,
      memory(of: old.id).isEmpty, let successor = supersede(old.id)
    else { return outcome }
    return .superseded(by: successor)
  }

  /// Returns whether a change finds the value that it expects; `true` if it expects no value.
  private func findsExpectedValue(_ change: TaskChange) -> Bool {
    guard case .setValue(let name, let bytes, _) = change else { return true }
    return values[ExactText(name)] == bytes
  }

  /// Returns whether a change with this target is not stale.
  ///
  /// Either the target's lease is valid, or its unclaimed task exists and does not run.
  private func isCurrent(_ target: TaskTarget) -> Bool {
    switch target {
    case .claimed(let lease): entries.contains { $0.lease == lease }
    case .unclaimed(let id): record(of: id).map { $0.state != .running } ?? false
    }
  }

  private static let unclaimed: Set<TaskState> = [.waiting, .suspended, .parked, .paused]
  private static let ended = Set(TaskState.allCases.filter(\.isFinished))

  /// Changes a claimed task, or an unclaimed one that is in one of the states.
  private mutating func changeState(
    of target: TaskTarget,
    in states: Set<TaskState>,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    keepsPlace: Bool = false,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    switch target {
    case .claimed(let lease):
      change(lease, to: state, retains: retains, at: date, keepsPlace: keepsPlace, note)
    case .unclaimed(let id):
      change(id, in: states, to: state, retains: retains, at: date, note)
    }
  }
}

extension ReferenceTable {
  private mutating func update(_ id: TaskID, _ update: TaskUpdate) -> ChangeOutcome {
    guard let index = entries.firstIndex(where: { $0.record.id == id }),
      Self.unclaimed.contains(entries[index].record.state),
      entries[index].record.uniqueKey == nil || entries[index].record.keyRole != nil
    else { return .stale }
    let old = entries[index].record
    entries[index].record = old.updated(by: update)
    if entries[index].record.priority != old.priority { entries[index].place = nextPlace() }
    return .done
  }
}

extension TaskRecord {
  /// Returns a copy with the update, built field by field.
  fileprivate func updated(by update: TaskUpdate) -> TaskRecord {
    TaskRecord(
      id: id,
      name: name,
      payload: update.payload ?? payload,
      priority: update.priority ?? priority,
      createdDate: createdDate,
      maxRetries: update.maxRetries ?? maxRetries,
      usesBackoff: update.usesBackoff ?? usesBackoff,
      uniqueKey: uniqueKey,
      keyRole: keyRole,
      uniqueUntil: uniqueUntil,
      latestDate: latestDate,
      orderKey: orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure,
      conditions: conditions,
      dependencies: dependencies,
      queue: queue,
      tags: update.tags ?? tags,
      metadata: update.metadata ?? metadata,
      timeLimit: update.timeLimit ?? timeLimit,
      expiryDate: update.expiryDate ?? expiryDate,
      memorySize: memorySize,
      state: state,
      availableDate: availableDate,
      countedFrom: countedFrom,
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: lastError,
      failedDate: failedDate,
      failedAttempt: failedAttempt,
      earlierFailures: earlierFailures,
      parkedVersion: parkedVersion,
      command: command,
      isPostponed: isPostponed,
      finishedDate: finishedDate
    )
  }

  fileprivate mutating func addFailure(_ failure: TaskFailure?) {
    guard let failure else { return }
    // Truncate by Unicode scalars, as a database does: it counts each scalar as a character.
    earlierFailures = failures.suffix(4).map { earlier in
      let scalars = Array(earlier.reason.unicodeScalars).prefix(500)
      var reason = String.UnicodeScalarView()
      reason.append(contentsOf: scalars)
      return TaskFailure(reason: String(reason), date: earlier.date, attempt: earlier.attempt)
    }
    lastError = failure.reason
    failedDate = failure.date
    failedAttempt = failure.attempt
  }
}

/// Order keys and conditions in the reference.
extension ReferenceTable {
  /// The tasks that wait only for their dates, their conditions and a worker.
  package var waiting: [Entry] {
    let waitingForOthers = waitingForOthers
    return entries.filter { entry in
      isDueOnDate(entry.record) && entry.record.keyRole != .successor && isFirstInOrder(entry)
        && !waitingForOthers.contains(entry.record.id)
    }
  }

  /// Returns whether a task becomes available on its date.
  private func isDueOnDate(_ record: TaskRecord) -> Bool {
    record.state == .waiting
      || record.state == .suspended && record.availableDate < .distantFuture
  }

  /// Returns whether no other task with the task's order key runs or comes before the task.
  private func isFirstInOrder(_ entry: Entry) -> Bool {
    guard let key = entry.record.orderKey else { return true }
    return !entries.contains { other in
      guard other.record.orderKey?.isExactly(key) == true, other.record.id != entry.record.id,
        other.record.queue.isExactly(entry.record.queue)
      else { return false }
      let counts = !other.record.state.isFinished || other.record.blocksOrder
      return other.record.state == .running || counts && other.number < entry.number
    }
  }
}

/// Values, memories and suspension in the reference.
extension ReferenceTable {
  /// Returns the values whose names begin with a prefix, in the order of the names' UTF-8 bytes.
  package func values(prefix: String) -> [(name: String, bytes: [UInt8])] {
    values.map { (name: $0.key.text, bytes: $0.value) }
      .filter { $0.name.utf8.starts(with: prefix.utf8) }
      .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
  }

  /// Returns the values that a task remembers, by the bytes of their names.
  package func memory(of id: TaskID) -> [ExactText: [UInt8]] {
    index(of: id).map { entries[$0].memory } ?? [:]
  }

  mutating func remember(
    _ value: [UInt8],
    named name: String,
    by lease: Lease
  ) -> ChangeOutcome {
    guard let index = index(of: lease.id), entries[index].lease == lease else { return .stale }
    setMemory(value, named: name, ofTaskAt: index)
    entries[index].record.interruptionCount = 0
    return .done
  }

  private mutating func setMemory(
    _ value: [UInt8],
    named name: String,
    ofTaskAt index: Int
  ) {
    entries[index].memory[ExactText(name)] = value
    entries[index].record.memorySize = entries[index].memory.reduce(0) { size, item in
      size + item.key.text.utf8.count + item.value.count
    }
  }

  mutating func forget(_ id: TaskID) {
    guard let index = index(of: id) else { return }
    entries[index].memory = [:]
    entries[index].record.memorySize = 0
  }

  mutating func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) -> ChangeOutcome {
    let memory = memory(of: lease.id)
    let outcome = change(lease, to: .suspended) { record in
      record.availableDate = date
      record.countedFrom = origin
      record.interruptionCount = 0
      record.isPostponed = false
    }
    let hasCome = names.contains { !(memory[ExactText($0)] ?? []).isEmpty }
    if outcome == .done, hasCome { wake(lease.id) }
    return outcome
  }

  mutating func complete(
    _ id: TaskID,
    named name: String,
    with value: [UInt8]
  ) -> ChangeOutcome {
    guard let index = index(of: id), !entries[index].record.state.isFinished,
      entries[index].memory[ExactText(name)] == []
    else { return .stale }
    setMemory(value, named: name, ofTaskAt: index)
    if entries[index].record.state == .suspended {
      wake(id)
      entries[index].place = nextPlace()
    }
    return .done
  }

  mutating func wake(_ id: TaskID) {
    guard let index = index(of: id) else { return }
    wake(&entries[index].record)
  }

  /// Makes a suspended task wait, with its creation date as the available date.
  func wake(_ record: inout TaskRecord) {
    record.state = .waiting
    record.availableDate = record.createdDate
    record.countedFrom = record.createdDate
    record.isPostponed = false
  }
}

extension ReferenceTable {
  /// Moves each date that was counted from a date after `now`, as if it were counted from `now`.
  package mutating func rebase(to now: Date) {
    for index in entries.indices.sorted(by: { entries[$0].place < entries[$1].place }) {
      let old = entries[index].record
      var record = old.withCreatedDate(min(old.createdDate, now))
      if !old.state.isFinished { record.failedDate = old.failedDate.map { min($0, now) } }
      if !old.state.isFinished, let origin = old.countedFrom, origin > now {
        record.availableDate = old.availableDate.moved(by: now.timeIntervalSince(origin))
        record.countedFrom = now
        if old.state == .suspended { wake(&record) }
        if record.state == .waiting { entries[index].place = nextPlace() }
      }
      entries[index].record = record
      if let start = entries[index].leaseStart, start > clock {
        entries[index].leaseEnd? += clock.timeIntervalSince(start)
        entries[index].leaseStart = clock
      }
    }
  }
}

extension Date {
  fileprivate func moved(by seconds: TimeInterval) -> Date {
    // Rounds like a store that stores seconds since 1970.
    Date(timeIntervalSince1970: (self + seconds).timeIntervalSince1970)
  }
}

extension TaskRecord {
  /// Returns a copy with another creation date, built field by field.
  ///
  /// The dates that were counted from the creation date move by the same duration.
  func withCreatedDate(_ date: Date) -> TaskRecord {
    func moved(_ end: Date?) -> Date? {
      guard let end, end >= createdDate, date != createdDate else { return end }
      return end.moved(by: date.timeIntervalSince(createdDate))
    }
    return TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority,
      createdDate: date,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      uniqueKey: uniqueKey,
      keyRole: keyRole,
      uniqueUntil: moved(uniqueUntil),
      latestDate: moved(latestDate),
      orderKey: orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure,
      conditions: conditions,
      dependencies: dependencies,
      queue: queue,
      tags: tags,
      metadata: metadata,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      memorySize: memorySize,
      state: state,
      availableDate: availableDate,
      countedFrom: countedFrom,
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: lastError,
      failedDate: failedDate,
      failedAttempt: failedAttempt,
      earlierFailures: earlierFailures,
      parkedVersion: parkedVersion,
      command: command,
      isPostponed: isPostponed,
      finishedDate: finishedDate
    )
  }
}
