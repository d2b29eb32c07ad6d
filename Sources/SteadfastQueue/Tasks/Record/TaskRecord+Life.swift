#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task wait as it did when it was enqueued, but from another date on.
  ///
  /// Stores call this on ``TaskChange/restart(_:availableDate:forgets:)``. This clears the task's
  /// retries, interruptions, failures, end date and ``isPostponed``, and the task because of which
  /// it was cancelled. The date is the present one by the clock (``countedFrom``). This also drops
  /// an expiry date that has come by `availableDate`: otherwise the task would be abandoned again
  /// at once. The store itself changes the task's lease, if it has one, and moves the task behind
  /// its equals in line.
  public mutating func restart(availableDate: Date) {
    state = .waiting
    self.availableDate = availableDate
    finishedDate = nil
    forgetFailures()
    countedFrom = availableDate
    if presentDependencies?.cause != nil { dependencies.cause = nil }
    if hasExpired(by: availableDate) { dropExpiry() }
  }

  /// Suspends the task until a date.
  ///
  /// Stores call this on ``TaskChange/suspend(_:until:awaiting:countedFrom:)``, unless what the
  /// task awaits has come: then they call ``wake()`` as well. It clears the interruptions and
  /// ``isPostponed``. Retries and failures stay.
  public mutating func suspend(until date: Date, countedFrom origin: Date?) {
    state = .suspended
    availableDate = date
    countedFrom = origin
    if interruptionCount > 0 { interruptionCount = 0 }
    if isPostponed { isPostponed = false }
  }

  /// Whether its date ever comes; it does not for a task that is suspended without one.
  var hasDueDate: Bool { availableDate < .distantFuture }

  /// Makes a suspended task wait, available at once.
  ///
  /// Stores call this on ``TaskChange/complete(_:named:value:)``, and before they pause or replace
  /// a suspended task. The date becomes ``createdDate``.
  public mutating func wake() {
    state = .waiting
    availableDate = createdDate
    countedFrom = createdDate
    if isPostponed { isPostponed = false }
  }

  /// Counts from `now` what was counted from a later date, by a clock that was ahead.
  ///
  /// Stores call this on ``TaskChange/rebase(_:)``, for tasks in any state. If ``createdDate`` is
  /// later than `now`, it becomes `now`, and ``uniqueUntil`` and ``latestDate`` keep their distance
  /// from it. Nothing else of a task changes that has ended. If ``failedDate`` is later, it becomes
  /// `now`, too.
  ///
  /// If ``countedFrom`` is later than `now`, it becomes `now`, and ``availableDate`` keeps its
  /// distance from it. A suspended task wakes instead (``wake()``): its handler counts again what
  /// it waits for. A date that was chosen stays.
  /// - Returns: Whether ``availableDate`` has become another one. If the task waits, it goes behind
  ///   its equals then.
  public mutating func rebase(to now: Date) -> Bool {
    let origin = countedFrom
    if createdDate > now { setCreatedDate(now) }
    if state.isFinished { return false }
    if let failedDate, failedDate > now { self.failedDate = now }
    guard let origin, origin > now else { return false }
    if state == .suspended {
      wake()
    } else {
      availableDate = availableDate.moved(from: origin, to: now)
      countedFrom = now
    }
    return true
  }

  /// Changes the date on which the task was enqueued, and those that were counted from it.
  private mutating func setCreatedDate(_ date: Date) {
    var definition = shared.value
    let old = definition.createdDate
    definition.createdDate = date
    if var extras = definition.extras.present {
      // What is earlier was counted from another date, by a task that this one has taken over.
      if let end = extras.uniqueUntil, end >= old {
        extras.uniqueUntil = end.moved(from: old, to: date)
      }
      if let end = extras.latestDate, end >= old {
        extras.latestDate = end.moved(from: old, to: date)
      }
      definition.extras.value = extras
    }
    shared = SharedDefinition(definition)
  }

  /// Returns whether new tasks with the unique key count as this one on a date.
  func standsForOthers(on date: Date) -> Bool { uniqueUntil.map { $0 > date } ?? false }

  /// Whether it expired before a later task was added, which has taken its unique key.
  ///
  /// No attempt at it begins, whatever a clock says by then.
  var isDisplaced: Bool {
    keyRole == nil && uniqueKey != nil && expiryDate != nil && !state.isFinished
  }

  /// Whether later tasks with its order key wait for it, although it has ended.
  public var holdsUpOthers: Bool { mayHoldUpOthers && (state == .abandoned || state == .cancelled) }

  /// Whether later tasks with its order key wait if it ends without success.
  var mayHoldUpOthers: Bool { blocksOrderOnFailure && orderKey != nil }

  /// How the task ended; `nil` if it has not.
  var outcome: TaskOutcome? {
    switch state {
    case .waiting, .running, .suspended, .parked, .paused: nil
    case .succeeded: .succeeded
    case .abandoned: .abandoned(reason: lastError ?? "")
    case .cancelled: .cancelled
    }
  }
}

extension Date {
  /// Returns the date that is as far from another date as this one is from its origin.
  fileprivate func moved(from origin: Date, to now: Date) -> Date {
    // What is equal stays equal. The rest is rounded as it is when it is read from a file.
    if self == origin { return now }
    let seconds = (now + timeIntervalSince(origin)).timeIntervalSince1970
    // If no finite date is that far ahead, it can't be stored either, and the date stays.
    return seconds.isFinite ? Date(timeIntervalSince1970: seconds) : self
  }
}

// A count may come from a file that anyone wrote. At the end of its range it stays as it is, so
// that it does not end the process.
extension TaskRecord {
  /// The number of failed attempts, once the current one has failed.
  var nextRetryCount: Int { Self.next(retryCount) }

  /// Counts that a process ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.next(interruptionCount) }

  private static func next(_ count: Int) -> Int { count < .max ? count + 1 : count }
}

extension TaskRecord {
  /// The number of failures that are kept in addition to the last one.
  private static var maxEarlierFailures: Int { 4 }

  /// The last five failures of the task, the oldest first; empty if it has none.
  ///
  /// The text of the last failure is ``lastError``, and its date is ``failedDate``. The texts of
  /// the earlier ones are cut to 500 Unicode scalars. It also counts as a failure that a payload
  /// could not be decoded, or that a task was abandoned because it had expired. A restart forgets
  /// all failures.
  public var failures: [TaskFailure] {
    guard let lastError, let failedDate else { return earlierFailures }
    return earlierFailures + [TaskFailure(reason: lastError, date: failedDate)]
  }

  /// Notes that an attempt has failed.
  ///
  /// Stores call this on ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` with
  /// a failure, ``TaskChange/abandon(_:failure:retains:)`` and ``TaskChange/park(_:failure:)``.
  ///
  /// The failure becomes the last one. The one that was last becomes the last of
  /// ``earlierFailures``, which keeps the first 500 Unicode scalars of its text.
  public mutating func note(_ failure: TaskFailure) {
    var noted = failureState.value
    if let last = noted.lastFailure {
      noted.earlierFailures = Self.kept(noted.earlierFailures + [last.shortened()])
    }
    noted.lastError = failure.reason
    noted.failedDate = failure.date
    failureState.value = noted
  }

  /// Returns the failures before the last one that are kept.
  package static func kept(_ failures: [TaskFailure]) -> [TaskFailure] {
    failures.count > maxEarlierFailures ? Array(failures.suffix(maxEarlierFailures)) : failures
  }

  /// Roughly how many bytes the failures take in a file.
  var failureByteCount: Int {
    // Each text comes with its date and with separators.
    earlierFailures.reduce(lastError?.utf8.count ?? 0) { $0 + $1.reason.utf8.count + 24 }
  }
}

extension TaskFailure {
  /// The limit of a text in Unicode scalars, which databases count as characters.
  private static var longestEarlierReason: Int { 500 }

  /// Returns the failure as it is kept when it is no longer the last one.
  package func shortened() -> TaskFailure {
    let limit = Self.longestEarlierReason
    guard reason.utf8.count > limit, reason.unicodeScalars.count > limit else { return self }
    return TaskFailure(reason: String(reason.unicodeScalars.prefix(limit)), date: date)
  }
}

extension TaskRecord: CustomStringConvertible {
  /// The name, the ID and the state, as in `PostComment 0199… (waiting, retry 2)`.
  ///
  /// It never shows the payload, keys, tags or errors.
  public var description: String {
    "\(name) \(id) (\(state)\(retryCount > 0 ? ", retry \(retryCount)" : ""))"
  }
}

/// What an update, a new task, or another store changes.
extension TaskRecord {
  /// Changes what an update names.
  ///
  /// Stores call this on ``TaskChange/update(_:_:)``.
  public mutating func apply(_ update: TaskUpdate) {
    var definition = shared.value
    if let payload = update.payload { definition.payload = payload }
    if let priority = update.priority { definition.priority = priority }
    if let maxRetries = update.maxRetries { definition.maxRetries = maxRetries }
    if let usesBackoff = update.usesBackoff { definition.usesBackoff = usesBackoff }
    var extras = definition.extras.value
    if let timeLimit = update.timeLimit { extras.timeLimit = timeLimit }
    if let expiryDate = update.expiryDate { extras.expiryDate = expiryDate }
    if let tags = update.tags { extras.tags = tags }
    definition.extras.value = extras
    shared = SharedDefinition(definition)
  }

  /// Takes over the payload, the options and the date of a new task with the same key.
  ///
  /// Stores call this on ``TaskChange/insert(_:onDuplicate:)`` with ``UniquePolicy/replace``, if
  /// this task is not running. ``UniquePolicy/replace`` says what becomes of the date. The store
  /// itself moves the task in line. The task keeps its order key and its place in that order, and
  /// waits for the tasks that it waited for.
  ///
  /// - Returns: Whether the task goes behind its equals: its priority or its date becomes another
  ///   one, or it was parked or suspended.
  public mutating func takeOver(_ new: TaskRecord) -> Bool {
    let before = (state, priority, availableDate)
    var definition = shared.value
    let old = definition.extras.value
    definition.payload = new.payload
    definition.maxRetries = new.maxRetries
    definition.usesBackoff = new.usesBackoff
    definition.priority = new.priority
    var extras = new.shared.value.extras.value
    extras.latestDate = old.latestDate ?? extras.latestDate
    extras.prerequisites.value = Prerequisites(
      orderKey: orderKey,
      orderNumber: orderNumber,
      blocksOrderOnFailure: blocksOrderOnFailure,
      conditions: new.conditions,
      dependencies: Rare(dependencies)
    )
    definition.extras.value = extras
    shared = SharedDefinition(definition)
    if state == .suspended { wake() }
    if state == .parked { state = .waiting }
    let isAtOnce = new.availableDate <= new.createdDate
    let takesDate =
      isPostponed
      ? new.availableDate > availableDate : !isAtOnce || new.availableDate < availableDate
    if takesDate {
      availableDate = new.availableDate
      countedFrom = new.countedFrom
    }
    if !isPostponed, !isAtOnce, let latest = extras.latestDate, latest < availableDate {
      availableDate = latest
      countedFrom = createdDate
    }
    return (state, priority, availableDate) != before
  }

  /// Takes the place of the holder of its key, which has failed.
  ///
  /// Stores call this for the successor on
  /// ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` of the holder. `holder`
  /// is the holder after that change. The successor gets its retries and its failures, and is not
  /// performed before the retry's date.
  public mutating func takePlace(of holder: TaskRecord) {
    keyRole = .holder
    let origin = countedFrom
    failureState = holder.failureState
    if availableDate > holder.availableDate {
      countedFrom = origin
    } else {
      availableDate = holder.availableDate
      countedFrom = holder.countedFrom
    }
  }
}

extension TaskRecord {
  /// Returns the same task with its payload in another form.
  func replacing(payload: StoredPayload) -> TaskRecord {
    var definition = shared.value
    definition.payload = payload
    var record = self
    record.shared = SharedDefinition(definition)
    return record
  }

  /// Returns the same task in another queue.
  package func replacing(queue: String) -> TaskRecord {
    var definition = shared.value
    definition.extras.value.queue = queue
    var record = self
    record.shared = SharedDefinition(definition)
    return record
  }

  /// Returns the same task with another ID.
  func replacing(id: TaskID) -> TaskRecord {
    var record = self
    record.shared = SharedDefinition(shared.value.replacing(id: id))
    return record
  }
}

extension TaskRecord {
  /// Throws if this is no new task, or has a value that the form does not allow.
  func check(_ form: FormCheck) throws(TaskQueueError) {
    guard state != .running else {
      throw TaskQueueError(.invalidArgument, "the new task \(id) is running; a new task waits")
    }
    try form.check(text: name, "name")
    try form.check(createdDate, "createdDate")
    try form.check(availableDate, "availableDate")
    try form.check(finishedDate, "finishedDate")
    try TaskQueueError.check(maxRetries, "maxRetries")
    if let uniqueKey { try form.check(text: uniqueKey, "uniqueKey") }
    if hasFailureState { try checkFailureState(form) }
    if hasExtras {
      try form.check(expiryDate, "expiryDate")
      try form.check(timeLimit: timeLimit, "timeLimit")
      try form.check(uniqueUntil, "uniqueUntil")
      try form.check(latestDate, "latestDate")
      try form.check(texts: tags, "tags")
      try TaskQueueError.check(key: orderKey, "orderKey")
      if let orderKey { try form.check(text: orderKey, "orderKey") }
      try TaskQueueError.check(queue: queue)
      try TaskQueueError.check(conditions, "conditions")
      try form.check(texts: Set(conditions.map(\.rawValue)), "conditions")
      if let dependencies = presentDependencies { try check(dependencies) }
    }
  }

  private func check(_ dependencies: TaskDependencies) throws(TaskQueueError) {
    try TaskQueueError.check(dependencies: dependencies.tasks, "after")
    guard !dependencies.tasks.contains(id), dependencies.follower != id else {
      throw TaskQueueError(.invalidArgument, "the task \(id) waits for itself")
    }
    guard dependencies.batch?.isPossible ?? true else {
      throw TaskQueueError(
        .invalidArgument,
        "the progress of the batch before the task \(id) is impossible"
      )
    }
  }

  private func checkFailureState(_ form: FormCheck) throws(TaskQueueError) {
    try form.check(failedDate, "failedDate")
    try form.check(explicitOrigin, "countedFrom")
    if let lastError { try form.check(text: lastError, "lastError") }
    for failure in earlierFailures { try form.check(failure, "an earlier failure") }
    try TaskQueueError.check(retryCount, "retryCount")
    try TaskQueueError.check(interruptionCount, "interruptionCount")
  }
}

extension TaskRecord {
  /// Returns whether a task that is in the store is this new one, which was stored before.
  ///
  /// Stores call it when the ID of a new task is taken: a queue may send an insertion again if the
  /// answer was lost. What never changes must be the same: the ID, the name, the queue, the unique
  /// key and the order key, and the payload. The date on which the task was made is the same to a
  /// microsecond, or an earlier one since a rebase. All else may have changed since.
  public func isStored(as other: TaskRecord) -> Bool {
    guard id == other.id, name.isExactly(other.name), queue.isExactly(other.queue),
      uniqueKey.map(ExactText.init) == other.uniqueKey.map(ExactText.init),
      orderKey.map(ExactText.init) == other.orderKey.map(ExactText.init),
      other.createdDate < createdDate || other.createdDate.isStored(as: createdDate),
      payload.format == other.payload.format, payload.version == other.payload.version,
      let bytes = try? payload.bytes(), let others = try? other.payload.bytes()
    else { return false }
    return bytes == others
  }
}

extension Date {
  /// Returns whether the date may be another one that was stored to a microsecond.
  func isStored(as other: Date) -> Bool {
    abs(timeIntervalSince(other)) <= 1e-6 + 4 * other.timeIntervalSince1970.ulp
  }
}
