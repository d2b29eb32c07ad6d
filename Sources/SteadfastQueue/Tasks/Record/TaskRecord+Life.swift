public import SystemFoundation

extension TaskRecord {
  /// Moves the task: its state, dates, counts and failures become those after the move.
  ///
  /// Stores call this for ``TaskChange/move(_:_:)``, if ``TaskMove/state(from:)`` returns a state.
  /// The store itself ends the task's lease, if the task has one, and puts the task at its position
  /// among the tasks with the same priority and available date.
  ///
  /// A suspended task that is paused wakes first (``wake()``). A restart resets the task to how it
  /// was when it was enqueued, but with another available date: it clears the task's retries,
  /// interruptions, failures, ``finishedDate``, ``isPostponed`` and ``TaskDependencies/cause``. If
  /// the task has expired by that date, its expiry date is removed, because the task would be
  /// abandoned again at once. For the tasks that are restarted along with another one, stores call
  /// this with the same move.
  public mutating func move(by move: TaskMove) {
    guard let next = move.state(from: state) else { return }
    command = nil
    if move.kind == .restart { reset() }
    if state == .suspended, next == .paused { wake() }
    if let failure = move.failure { note(failure) }
    if move.kind == .park { parkedVersion = move.knownVersion }
    if let date = move.availableDate {
      availableDate = date
      countedFrom = move.countedFrom
    }
    if let count = move.retryCount {
      retryCount = count
      interruptionCount = 0
    }
    if let isPostponed = move.isPostponed { self.isPostponed = isPostponed }
    state = next
    if move.kind == .restart, hasExpired(by: availableDate) { removeExpiryDate() }
  }

  /// Clears what has happened to the task since it was enqueued.
  private mutating func reset() {
    finishedDate = nil
    forgetFailures()
    if presentDependencies?.cause != nil { dependencies.cause = nil }
  }

  /// Suspends the task until a date.
  ///
  /// Stores call this for ``MemoryChange/suspend(_:until:awaiting:countedFrom:)``. If a completion
  /// that the task awaits has already arrived, they then call ``wake()``. This method also sets
  /// ``interruptionCount`` to 0, and ``isPostponed`` to `false`. Retries and failures stay.
  public mutating func suspend(until date: Date, countedFrom origin: Date?) {
    state = .suspended
    command = nil
    availableDate = date
    countedFrom = origin
    if interruptionCount > 0 { interruptionCount = 0 }
    if isPostponed { isPostponed = false }
  }

  /// Whether the task becomes available at some date.
  ///
  /// A task that is suspended without a date has the available date `.distantFuture`.
  var hasDueDate: Bool { availableDate < .distantFuture }

  /// Makes a suspended task available at once.
  ///
  /// Stores call this for ``MemoryChange/complete(_:named:value:)``, and before they replace a
  /// suspended task. The task waits again, and ``availableDate`` becomes ``createdDate``.
  public mutating func wake() {
    state = .waiting
    availableDate = createdDate
    countedFrom = createdDate
    if isPostponed { isPostponed = false }
  }

  /// Corrects the dates that were calculated while the clock was ahead.
  ///
  /// Stores call this for ``BroadChange/rebase(_:)``, for tasks in any state. `now` is the current
  /// date of the corrected clock. If ``createdDate`` is later than `now`, it becomes `now`, and
  /// ``uniqueUntil`` and ``latestDate`` move by the same interval. If the task has ended, nothing
  /// else changes. Otherwise, a ``failedDate`` that is later than `now` becomes `now`, too.
  ///
  /// If ``countedFrom`` is later than `now`, it becomes `now`, and ``availableDate`` moves by the
  /// same interval. But if the task is suspended, it wakes instead (``wake()``), and its handler
  /// calculates the date again. An ``availableDate`` that a caller has chosen stays.
  ///
  /// - Returns: Whether ``availableDate`` has changed. If so, the store moves a waiting task behind
  ///   the waiting tasks with the same priority and available date.
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

  /// Changes ``createdDate``, and the dates that were calculated from it.
  private mutating func setCreatedDate(_ date: Date) {
    var definition = shared.value
    let old = definition.createdDate
    definition.createdDate = date
    if var extras = definition.extras.present {
      // A date before `old` was not calculated from `old`: this task has replaced an earlier one,
      // and the date was calculated when the earlier task was enqueued.
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

  /// Returns whether ``uniqueUntil`` makes a new task with the same unique key a duplicate of this
  /// task at a date.
  func isDeduplicating(at date: Date) -> Bool { uniqueUntil.map { $0 > date } ?? false }

  /// Whether a later task has this task's unique key, because this task had expired when the later
  /// task was added.
  ///
  /// This task is not attempted again, even if a wrong clock says that it has not expired.
  var isDisplaced: Bool {
    keyRole == nil && uniqueKey != nil && expiryDate != nil && !state.isFinished
  }

  /// Whether the task has ended without success, and later tasks with its order key must wait.
  ///
  /// They wait until the task is restarted or removed (``blocksOrderOnFailure``).
  public var blocksOrder: Bool { mayBlockOrder && (state == .abandoned || state == .cancelled) }

  /// Whether later tasks with the same order key must wait if the task ends without success.
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
  /// Returns the date moved by the interval from `origin` to `now`.
  fileprivate func moved(from origin: Date, to now: Date) -> Date {
    // If this date equals `origin`, the result must equal `now`, without an error of rounding.
    // Other results are rounded in the same way as dates that are read from a file.
    if self == origin { return now }
    let seconds = (now + timeIntervalSince(origin)).timeIntervalSince1970
    // An infinite date can't be stored. In this case, the date does not move.
    return seconds.isFinite ? Date(timeIntervalSince1970: seconds) : self
  }
}

extension TaskRecord {
  /// The number of failed attempts if the current attempt fails, too.
  var nextRetryCount: Int { Self.addingOne(to: retryCount) }

  mutating func countInterruption() { interruptionCount = Self.addingOne(to: interruptionCount) }

  /// Returns `count + 1`, but at most `Int.max`.
  ///
  /// The count may come from a file that another program wrote, and an overflow would crash the
  /// process.
  private static func addingOne(to count: Int) -> Int { count < .max ? count + 1 : count }
}

extension TaskRecord {
  /// The maximum number of failures that are stored besides the last one.
  private static var maxEarlierFailures: Int { 4 }

  /// The last five failures of the task, the oldest first; empty if the task has not failed.
  ///
  /// The text of the last failure is ``lastError``, and its date is ``failedDate``. The texts of
  /// the earlier failures are cut to 500 Unicode scalars. If a payload can't be decoded, or if a
  /// task expires, this also counts as a failure. A restart clears all failures.
  public var failures: [TaskFailure] {
    guard let last = failureState.present?.lastFailure else { return earlierFailures }
    return earlierFailures + [last]
  }

  /// Records a failure as the last one.
  ///
  /// Stores call this for ``TaskChange/end(_:_:)`` with a failure, if the task is retained.
  ///
  /// The previous last failure is appended to ``earlierFailures``, with the first 500 Unicode
  /// scalars of its text.
  public mutating func note(_ failure: TaskFailure) {
    var noted = failureState.value
    if let last = noted.lastFailure {
      noted.earlierFailures = Self.latestStorable(of: noted.earlierFailures + [last.shortened()])
    }
    noted.lastError = failure.reason
    noted.failedDate = failure.date
    noted.failedAttempt = failure.attempt
    failureState.value = noted
  }

  /// Returns the latest of the earlier failures: at most as many as a record stores.
  package static func latestStorable(of failures: [TaskFailure]) -> [TaskFailure] {
    failures.count > maxEarlierFailures ? Array(failures.suffix(maxEarlierFailures)) : failures
  }

  /// The approximate number of bytes that the failures use in a file.
  var failureByteCount: Int {
    // 24 bytes are for the date and the separators, and as many for how the attempt failed.
    earlierFailures.reduce(lastError.map { $0.utf8.count + 24 } ?? 0) {
      $0 + $1.reason.utf8.count + 48
    }
  }
}

extension TaskFailure {
  /// The maximum length of an earlier failure's text, in Unicode scalars: databases, too, count
  /// these as characters.
  private static var longestEarlierReason: Int { 500 }

  /// Returns the failure with its text cut to the length that is stored for an earlier failure.
  package func shortened() -> TaskFailure {
    let limit = Self.longestEarlierReason
    guard reason.utf8.count > limit, reason.unicodeScalars.count > limit else { return self }
    return TaskFailure(
      reason: String(reason.unicodeScalars.prefix(limit)),
      date: date,
      attempt: attempt
    )
  }
}

extension TaskRecord: CustomStringConvertible {
  /// The name, the ID and the state, as in `PostComment 0199… (waiting, retry 2)`.
  ///
  /// The description never contains the payload, keys, tags, metadata or errors.
  public var description: String {
    "\(name) \(id) (\(state)\(retryCount > 0 ? ", retry \(retryCount)" : ""))"
  }
}

extension TaskRecord {
  /// Applies an update: each property of the update that is not `nil` replaces the task's.
  ///
  /// Stores call this for ``TaskChange/update(_:_:)``.
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
    if let metadata = update.metadata { extras.metadata = metadata }
    definition.extras.value = extras
    shared = SharedDefinition(definition)
  }

  /// Adopts the payload, the options and the date of a new task with the same unique key.
  ///
  /// Stores call this for ``TaskChange/insert(_:onDuplicate:)`` with ``UniquePolicy/replace``, if
  /// this task is not running. ``UniquePolicy/replace`` says whether the date is adopted. The task
  /// keeps its order key, its position among the tasks with that key, and its dependencies.
  ///
  /// - Returns: Whether the priority, the available date or the state has changed. If so, the store
  ///   moves the task behind the waiting tasks with the same priority and available date.
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
    command = nil
    let isNewAvailableAtOnce = new.availableDate <= new.createdDate
    let takesDate =
      isPostponed
      ? new.availableDate > availableDate
      : !isNewAvailableAtOnce || new.availableDate < availableDate
    if takesDate {
      availableDate = new.availableDate
      countedFrom = new.countedFrom
    }
    if !isPostponed, !isNewAvailableAtOnce, let latest = extras.latestDate, latest < availableDate {
      availableDate = latest
      countedFrom = createdDate
    }
    return (state, priority, availableDate) != before
  }

  /// Makes this task, the successor of a holder whose attempt has failed, the holder of their
  /// unique key.
  ///
  /// Stores call this when a move removes the holder (``TaskMove/yieldsToSuccessor``). `holder` is
  /// the holder as the move would have left it. This task
  /// inherits the holder's retries and failures, and is not performed before the date of the retry.
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
  /// Returns the same task with another payload.
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
  /// Throws if this task can't be a new task, or if one of its values is invalid.
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
      try TaskQueueError.check(metadata: metadata, "metadata")
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
        "the progress of the batch that the task \(id) waits for is impossible; give counts that are "
          + "not negative, and a total that is at least succeeded plus failed"
      )
    }
  }

  private func checkFailureState(_ checker: ValueChecker) throws(TaskQueueError) {
    try checker.check(failedDate, "failedDate")
    try checker.check(explicitOrigin, "countedFrom")
    if let lastError { try checker.check(string: lastError, "lastError") }
    if let failedAttempt { try checker.check(string: failedAttempt.text, "failedAttempt") }
    for failure in earlierFailures { try checker.check(failure, "an earlier failure") }
    try TaskQueueError.check(retryCount, "retryCount")
    try TaskQueueError.check(interruptionCount, "interruptionCount")
  }
}

extension TaskRecord {
  /// Returns whether `other`, a stored task, is this new task.
  ///
  /// A queue may repeat an insertion if the response was lost. So a store calls this method when it
  /// already has a task with the ID of a new task. The tasks are the same if their ID, name, queue,
  /// unique key, order key and payload are equal, and ``createdDate`` is equal to the microsecond,
  /// or earlier in `other`, because of a rebase (``rebase(to:)``). Everything else may have changed
  /// since.
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
  /// Returns whether the dates are equal after a store has rounded one of them to the microsecond.
  func isStored(as other: Date) -> Bool {
    abs(timeIntervalSince(other)) <= 1e-6 + 4 * other.timeIntervalSince1970.ulp
  }
}
