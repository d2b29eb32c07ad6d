public import SystemFoundation

extension TaskRecord {
  /// Resets the task to how it was when it was enqueued, but with another available date.
  ///
  /// Stores call this on ``TaskChange/restart(_:availableDate:forgets:)``. It clears the task's
  /// retries, interruptions, failures, end date and ``isPostponed``, and its
  /// ``TaskDependencies/cause``. `availableDate` is the present date by the queue's clock, so it
  /// becomes ``countedFrom``. An expiry date that has passed by `availableDate` is removed, too:
  /// otherwise the task would be abandoned again at once. The store itself changes the task's
  /// lease, if the task has one, and moves the task behind its equals in line.
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
  /// Stores call this on ``TaskChange/suspend(_:until:awaiting:countedFrom:)``. If the completion
  /// that the task awaits has already arrived, they then call ``wake()``. Suspending clears the
  /// interruptions and ``isPostponed``. Retries and failures stay.
  public mutating func suspend(until date: Date, countedFrom origin: Date?) {
    state = .suspended
    availableDate = date
    countedFrom = origin
    if interruptionCount > 0 { interruptionCount = 0 }
    if isPostponed { isPostponed = false }
  }

  /// Whether the task becomes available on some date; a task that is suspended without a date does
  /// not.
  var hasDueDate: Bool { availableDate < .distantFuture }

  /// Makes a suspended task wait, available at once.
  ///
  /// Stores call this on ``TaskChange/complete(_:named:value:)``, and before they pause or replace
  /// a suspended task. ``availableDate`` becomes ``createdDate``.
  public mutating func wake() {
    state = .waiting
    availableDate = createdDate
    countedFrom = createdDate
    if isPostponed { isPostponed = false }
  }

  /// Corrects dates that are later than `now`, because the clock by which they were counted was
  /// ahead.
  ///
  /// Stores call this on ``TaskChange/rebase(_:)``, for tasks in any state. If ``createdDate`` is
  /// later than `now`, it becomes `now`, and ``uniqueUntil`` and ``latestDate`` keep their distance
  /// from it. In a task that has ended, nothing else changes. In other tasks, a ``failedDate`` that
  /// is later than `now` becomes `now`, too.
  ///
  /// If ``countedFrom`` is later than `now`, it becomes `now`, and ``availableDate`` keeps its
  /// distance from it. If the task is suspended, it wakes instead (``wake()``), and its handler
  /// chooses a date again. An ``availableDate`` that a caller has chosen stays.
  ///
  /// - Returns: Whether ``availableDate`` changed. If so, a waiting task goes behind its equals.
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

  /// Changes the date on which the task was enqueued, and the dates that were counted from it.
  private mutating func setCreatedDate(_ date: Date) {
    var definition = shared.value
    let old = definition.createdDate
    definition.createdDate = date
    if var extras = definition.extras.present {
      // A date before `old` was counted from the enqueueing of a task that this task has replaced.
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

  /// Returns whether a new task with the same unique key would be a duplicate of this task on a
  /// date.
  func isDeduplicating(on date: Date) -> Bool { uniqueUntil.map { $0 > date } ?? false }

  /// Whether a later task has this task's unique key, because this task had expired when the later
  /// one was added.
  ///
  /// The task is never attempted again, whatever a clock says later.
  var isDisplaced: Bool {
    keyRole == nil && uniqueKey != nil && expiryDate != nil && !state.isFinished
  }

  /// Whether later tasks with the task's order key wait for the task, although it has ended.
  public var blocksOrder: Bool { mayBlockOrder && (state == .abandoned || state == .cancelled) }

  /// Whether later tasks with the task's order key wait for the task if it ends without success.
  var mayBlockOrder: Bool { blocksOrderOnFailure && orderKey != nil }

  /// How the task ended; `nil` if it has not ended.
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
  /// Returns the date that is as far from `now` as this date is from `origin`.
  fileprivate func moved(from origin: Date, to now: Date) -> Date {
    // Dates that are equal stay equal. Other dates are rounded as when they are read from a file.
    if self == origin { return now }
    let seconds = (now + timeIntervalSince(origin)).timeIntervalSince1970
    // A date that is not finite can't be stored, so in that case, the date does not move.
    return seconds.isFinite ? Date(timeIntervalSince1970: seconds) : self
  }
}

// A count may come from a file that any program wrote. A count that is the maximum does not grow:
// an overflow would crash the process.
extension TaskRecord {
  /// The number of failed attempts if the current attempt fails, too.
  var nextRetryCount: Int { Self.addingOne(to: retryCount) }

  /// Counts one more process that ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.addingOne(to: interruptionCount) }

  private static func addingOne(to count: Int) -> Int { count < .max ? count + 1 : count }
}

extension TaskRecord {
  /// The maximum number of failures that are stored besides the last one.
  private static var maxEarlierFailures: Int { 4 }

  /// The last five failures of the task, the oldest first; empty if the task has not failed.
  ///
  /// The text of the last failure is ``lastError``, and its date is ``failedDate``. The texts of
  /// the earlier ones are cut to 500 Unicode scalars. A payload that could not be decoded also
  /// counts as a failure, and so does the expiry of an abandoned task. A restart clears all
  /// failures.
  public var failures: [TaskFailure] {
    guard let lastError, let failedDate else { return earlierFailures }
    return earlierFailures + [TaskFailure(reason: lastError, date: failedDate)]
  }

  /// Records that an attempt has failed.
  ///
  /// Stores call this on ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` with
  /// a failure, ``TaskChange/abandon(_:failure:retains:)`` and ``TaskChange/park(_:failure:)``.
  ///
  /// The failure becomes the last one. The previous last failure moves to the end of
  /// ``earlierFailures``, which stores the first 500 Unicode scalars of its text.
  public mutating func note(_ failure: TaskFailure) {
    var noted = failureState.value
    if let last = noted.lastFailure {
      noted.earlierFailures = Self.kept(noted.earlierFailures + [last.shortened()])
    }
    noted.lastError = failure.reason
    noted.failedDate = failure.date
    failureState.value = noted
  }

  /// Returns the latest of some earlier failures: as many as a record stores.
  package static func kept(_ failures: [TaskFailure]) -> [TaskFailure] {
    failures.count > maxEarlierFailures ? Array(failures.suffix(maxEarlierFailures)) : failures
  }

  /// The approximate number of bytes that the failures use in a file.
  var failureByteCount: Int {
    // Each text is stored with its date and separators.
    earlierFailures.reduce(lastError?.utf8.count ?? 0) { $0 + $1.reason.utf8.count + 24 }
  }
}

extension TaskFailure {
  /// The maximum length of a text in Unicode scalars, which databases count as characters.
  private static var longestEarlierReason: Int { 500 }

  /// Returns the failure with a shorter text, as it is stored when it is no longer the last
  /// failure.
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

/// Changes of a task by an update, by a new task with the same key, or by a holder that has failed.
extension TaskRecord {
  /// Applies an update.
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

  /// Adopts the payload, the options and the date of a new task with the same key.
  ///
  /// Stores call this on ``TaskChange/insert(_:onDuplicate:)`` with ``UniquePolicy/replace``, if
  /// this task is not running. ``UniquePolicy/replace`` says what happens to the date. The store
  /// itself moves the task in line. The task keeps its order key, its place in that order, and its
  /// dependencies.
  ///
  /// - Returns: Whether the task goes behind its equals in line: its priority or its date changed,
  ///   or the task was parked or suspended.
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
      dependencies: Boxed(dependencies)
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

  /// Makes this task, a successor, the holder of its key, in place of a holder whose attempt has
  /// failed.
  ///
  /// Stores call this for the successor on
  /// ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` of the holder. `holder`
  /// is the holder after that change. The successor inherits the holder's retries and failures, and
  /// is not performed before the retry's date.
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
  /// Throws if this task can't be a new task, or if one of its values fails the check.
  func check(_ checker: ValueChecker) throws(TaskQueueError) {
    guard state != .running else {
      throw TaskQueueError(
        .invalidArgument,
        "the new task \(id) is running; give it another state, such as .waiting"
      )
    }
    try checker.check(string: name, "name")
    try checker.check(createdDate, "createdDate")
    try checker.check(availableDate, "availableDate")
    try checker.check(finishedDate, "finishedDate")
    try TaskQueueError.check(maxRetries, "maxRetries")
    if let uniqueKey { try checker.check(string: uniqueKey, "uniqueKey") }
    if hasFailureState { try checkFailureState(checker) }
    if hasExtras {
      try checker.check(expiryDate, "expiryDate")
      try checker.check(timeLimit: timeLimit, "timeLimit")
      try checker.check(uniqueUntil, "uniqueUntil")
      try checker.check(latestDate, "latestDate")
      try checker.check(strings: tags, "tags")
      try TaskQueueError.check(key: orderKey, "orderKey")
      if let orderKey { try checker.check(string: orderKey, "orderKey") }
      try TaskQueueError.check(queue: queue)
      try TaskQueueError.check(conditions, "conditions")
      try checker.check(strings: Set(conditions.map(\.rawValue)), "conditions")
      if let dependencies = presentDependencies { try check(dependencies) }
    }
  }

  private func check(_ dependencies: TaskDependencies) throws(TaskQueueError) {
    try TaskQueueError.check(dependencies: dependencies.tasks, "after")
    guard !dependencies.tasks.contains(id), dependencies.follower != id else {
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) waits for itself; remove its ID from its own dependencies"
      )
    }
    guard dependencies.batch?.isPossible ?? true else {
      throw TaskQueueError(
        .invalidArgument,
        "the progress of the batch that the task \(id) follows is impossible; give counts that are "
          + "not negative, and no more ended tasks than the batch has"
      )
    }
  }

  private func checkFailureState(_ checker: ValueChecker) throws(TaskQueueError) {
    try checker.check(failedDate, "failedDate")
    try checker.check(explicitOrigin, "countedFrom")
    if let lastError { try checker.check(string: lastError, "lastError") }
    for failure in earlierFailures { try checker.check(failure, "an earlier failure") }
    try TaskQueueError.check(retryCount, "retryCount")
    try TaskQueueError.check(interruptionCount, "interruptionCount")
  }
}

extension TaskRecord {
  /// Returns whether this new task is already stored, as the task `other`.
  ///
  /// Stores call this when they already have a task with the ID of a new task: a queue may repeat
  /// an insertion if the response was lost. What never changes must be equal: the ID, the name, the
  /// queue, the unique key, the order key and the payload. The dates on which the two tasks were
  /// made must be equal to a microsecond, but the stored date may be earlier, because of a rebase.
  /// Everything else may have changed since.
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
  /// Returns whether the dates are equal to the microsecond to which stores round.
  func isStored(as other: Date) -> Bool {
    abs(timeIntervalSince(other)) <= 1e-6 + 4 * other.timeIntervalSince1970.ulp
  }
}
