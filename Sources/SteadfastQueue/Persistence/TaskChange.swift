public import SystemFoundation

/// One step in the life of a task; a queue decides on it, and a store stores it.
///
/// A task that goes *behind its equals* comes after the waiting tasks with the same priority and
/// the same available date.
///
/// More kinds may be added. A store refuses a kind that it does not know by throwing.
@nonexhaustive
public enum TaskChange: Sendable {
  /// A new task.
  ///
  /// If the store has a task with the same ID, nothing changes. If that is the same task, sent
  /// before (``TaskRecord/isStored(as:)``), the outcome is ``ChangeOutcome/done``. Otherwise, it is
  /// ``ChangeOutcome/identityTaken``.
  ///
  /// If no task with its name and its unique key has a role (``TaskRecord/keyRole``), the new task
  /// becomes the key's holder. Otherwise, the policy decides about the new task and its twin: the
  /// successor if there is one, or else the holder. An expired task that does not run is not a
  /// twin, because it gets no further attempt. A task is expired if its ``TaskRecord/expiryDate``
  /// is not later than the new task's ``TaskRecord/createdDate``. If the new task is added, an
  /// expired task loses its role in the same change, and does not change in any other way.
  ///
  /// - If the twin is a holder that runs, the new task is added as its successor with
  ///   ``UniquePolicy/keep`` and ``UniquePolicy/replace``. With ``UniquePolicy/keep``, this is only
  ///   so if the twin's ``TaskRecord/uniqueUntil`` is not later than the new task's
  ///   ``TaskRecord/createdDate``.
  /// - If the twin is a holder that remembers something, and does not run, the new task is added as
  ///   its successor with ``UniquePolicy/replace``: the twin has started work that must not
  ///   continue with another payload.
  /// - Otherwise, with ``UniquePolicy/keep``, the outcome is ``ChangeOutcome/duplicate(of:)``, and
  ///   nothing changes. With ``UniquePolicy/replace``, the twin takes over the new task
  ///   (``TaskRecord/takeOver(_:)``), and the outcome is ``ChangeOutcome/replaced(_:)``. If another
  ///   change to the twin is being stored, the insertion is refused as with
  ///   ``UniquePolicy/reject``.
  /// - With ``UniquePolicy/join``, the outcome is ``ChangeOutcome/duplicate(of:)`` and nothing
  ///   changes. The outcome names the holder, or the successor if the holder is not a twin.
  /// - With ``UniquePolicy/reject``, the outcome is the same. No change of the whole batch is
  ///   stored, as when the task's ID is taken.
  ///
  /// If there is no other twin and the policy is not ``UniquePolicy/replace``, a task that has
  /// succeeded is a twin too, if its ``TaskRecord/uniqueUntil`` is later than the new task's
  /// ``TaskRecord/createdDate``. Then the outcome is ``ChangeOutcome/duplicate(of:)``.
  ///
  /// When a holder ends or is removed, its successor becomes the holder in the same change.
  case insert(TaskRecord, onDuplicate: UniquePolicy)
  /// A claimed task has succeeded.
  ///
  /// If `retains` is `true`, the task is retained, otherwise it is removed. It forgets the values
  /// that it remembers.
  case succeed(Lease, at: Date, retains: Bool)
  /// A claimed task waits again, behind its equals, for a later attempt.
  ///
  /// The task is postponed to this date, with this number of failed attempts. A `failure` is the
  /// attempt's failure, and is recorded (``TaskRecord/note(_:)``). Without one, the recorded
  /// failures stay. The available date was counted from the date of the failure or, without one,
  /// from `countedFrom` (``TaskRecord/countedFrom``).
  ///
  /// The task may be removed instead. That happens if it is the holder of its unique key, it has a
  /// successor that does not expire by this date, no other task waits for it
  /// (``TaskDependencies``), and it remembers nothing. Then the successor takes its place
  /// (``TaskRecord/takePlace(of:)``), and the outcome is ``ChangeOutcome/superseded(by:)``.
  case retry(
    Lease,
    availableDate: Date,
    retryCount: Int,
    failure: TaskFailure?,
    countedFrom: Date? = nil
  )
  /// A claimed task is abandoned because of the failure, which is recorded.
  ///
  /// If `retains` is `true`, the task is retained, otherwise it is removed.
  case abandon(Lease, failure: TaskFailure, retains: Bool)
  /// A claimed task is released: it returns to its place in line as if it had never been claimed.
  case release(Lease)
  /// A claimed task is parked until `unpark`, because its payload could not be decoded.
  ///
  /// The failure is recorded.
  case park(Lease, failure: TaskFailure)
  /// All parked tasks of this name in this queue wait again.
  case unpark(name: String, queue: String = "")
  /// A task that has not ended is cancelled.
  ///
  /// If `retains` is `true`, the task is retained, otherwise it is removed.
  case cancel(TaskTarget, at: Date, retains: Bool)
  /// A task that has not ended is paused until it is resumed or restarted.
  ///
  /// A suspended task wakes first (``TaskRecord/wake()``), so that after it is resumed, it checks
  /// again whether the values that it awaits have arrived.
  case pause(TaskTarget)
  /// A paused task waits again, behind its equals, with its previous date and retries.
  case resume(TaskID)
  /// A task waits again as if it were new, from this date on, which is the present date.
  ///
  /// The task may be in any state, and may have ended (``TaskRecord/restart(availableDate:)``). A
  /// task that has ended, or has lost its role, becomes the holder of its unique key. If another
  /// task has a role, the outcome is ``ChangeOutcome/duplicate(of:)``, and nothing changes.
  ///
  /// If `forgets` is `true`, the task forgets everything that it remembers. Tasks that are
  /// restarted along with it don't.
  case restart(TaskTarget, availableDate: Date, forgets: Bool = false)
  /// A task that has not ended gets another available date.
  ///
  /// The task goes behind its equals, and its retries stay. A waiting, parked or paused task keeps
  /// its state. A claimed or suspended task waits again. If the date was counted by the clock, and
  /// not chosen, `countedFrom` is the date that it was counted from (``TaskRecord/countedFrom``).
  case reschedule(TaskTarget, availableDate: Date, countedFrom: Date? = nil)
  /// The options of a waiting, suspended, parked or paused task change (``TaskRecord/apply(_:)``).
  ///
  /// If its priority changes, the task goes behind its equals; otherwise it keeps its place in
  /// line. For a task that has lost its role, the outcome is ``ChangeOutcome/stale``.
  indirect case update(TaskID, TaskUpdate)
  /// A retained task is removed, and leaves no trace.
  case remove(TaskID)
  /// A claim lasts for this duration from now on, by the store's clock.
  ///
  /// Only stores that several queues share need it.
  case extend(Lease, for: Duration)
  /// Retained tasks of this queue that ended in this state are removed.
  ///
  /// A task stays if its ``TaskRecord/uniqueUntil`` is later than `now`, if it holds up others
  /// (``TaskRecord/blocksOrder``), or if it has a ``TaskDependencies/cause``. Any other task is
  /// removed if it ended before `endedBefore`, or if it is not one of the latest `keepingLatest` of
  /// those tasks. A limit that is `nil` removes none.
  case prune(
    TaskState,
    endedBefore: Date?,
    keepingLatest: Int?,
    now: Date,
    queue: String = ""
  )
  /// The clock went back to this date; only for stores whose queues have one clock
  /// (``Persistence/hasOneClock``).
  ///
  /// Each task is rebased (``TaskRecord/rebase(to:)``), whatever its state. Waiting tasks whose
  /// available dates change go behind their equals, in the same order. The request of the next
  /// claim decides which tasks are available. If the store's own clock went back too, no claim
  /// lasts longer from now on than the duration for which it was made or extended.
  case rebase(Date)
  /// A claimed task remembers these bytes under a name, replacing any others.
  ///
  /// Its ``TaskRecord/interruptionCount`` becomes 0. The name has 1 to 1,024 bytes of UTF-8, and
  /// the value at most 131,072 bytes. A value without bytes is *open*: it waits for a
  /// ``complete(_:named:value:)``.
  ///
  /// A batch may have several of these changes for one task, with different names, if it has no
  /// other change for it.
  case remember(Lease, named: String, value: [UInt8])
  /// A claimed task is suspended until a date (``TaskRecord/suspend(until:countedFrom:)``).
  ///
  /// It goes behind its equals. From that date on, a claim hands it out like a waiting task. A
  /// release makes it wait until then. With `Date.distantFuture` or a later date, no claim hands it
  /// out.
  ///
  /// If the task remembers at least one byte under any of the awaited names, it wakes at once
  /// (``TaskRecord/wake()``): the completion came before the suspension. The names have the limits
  /// of ``remember(_:named:value:)``.
  case suspend(Lease, until: Date, awaiting: [String], countedFrom: Date? = nil)
  /// An open value that a task remembers is filled; the task need not be claimed.
  ///
  /// The outcome is ``ChangeOutcome/stale`` if the task has ended, or if the name has no value or
  /// one that is not open. So the first of several completions counts. A suspended task wakes
  /// (``TaskRecord/wake()``) and goes behind its equals. In any other state, nothing else changes:
  /// the task finds the value when it looks.
  ///
  /// The value has at least one byte, and otherwise the limits of ``remember(_:named:value:)``
  /// hold.
  case complete(TaskID, named: String, value: [UInt8])
  /// The bytes stored under a name are replaced if they equal the expected ones.
  ///
  /// `nil` means no value: `from: nil` expects that there is none, and `to: nil` removes the value.
  /// An empty array, `[]`, is a value. The name has 1 to 1,024 bytes of UTF-8, and a value at most
  /// 65,536 bytes.
  ///
  /// The comparison precedes everything else in its batch. If the present bytes are not the
  /// expected ones, no change of the batch is stored, and the outcome of each of them is
  /// ``ChangeOutcome/valueDiffers``. So a batch can depend on values that its caller has read
  /// (``Persistence/value(named:)``). A batch has at most one such change for each name.
  case setValue(named: String, from: [UInt8]?, to: [UInt8]?)
}

extension TaskChange {
  /// The lease that the change names; `nil` if it names none.
  var lease: Lease? {
    switch self {
    case .succeed(let lease, _, _), .retry(let lease, _, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _),
      .remember(let lease, _, _), .suspend(let lease, _, _, _),
      .cancel(.claimed(let lease), _, _), .pause(.claimed(let lease)),
      .restart(.claimed(let lease), _, _), .reschedule(.claimed(let lease), _, _):
      lease
    case .insert, .unpark, .cancel, .pause, .resume, .restart, .reschedule, .update, .remove,
      .prune, .rebase, .complete, .setValue:
      nil
    }
  }
}

/// The task that a change concerns, and whether it is claimed.
public enum TaskTarget: Sendable, Hashable {
  /// A task that the caller has claimed; the lease is the proof.
  case claimed(Lease)
  /// A task that is not claimed. If it is claimed, the change is stale.
  case unclaimed(TaskID)

  /// The task.
  public var id: TaskID {
    switch self {
    case .claimed(let lease): lease.id
    case .unclaimed(let id): id
    }
  }
}

extension TaskChange {
  /// The ID of the task that the change adds; `nil` if it adds none.
  var newTaskID: TaskID? {
    if case .insert(let record, _) = self { record.id } else { nil }
  }
}

/// What a change must survive once a store has acknowledged it.
public enum Durability: Sendable, Hashable {
  /// A power cut.
  case durable
  /// The end of the process, however sudden, while the machine continues to run.
  case relaxed
}

/// The result of a change.
///
/// More kinds may be added.
@nonexhaustive
public enum ChangeOutcome: Sendable, Hashable {
  /// The change is stored.
  case done
  /// An insertion is stored: this task, which has the same unique key, has taken over the new one.
  case replaced(TaskID)
  /// The task was removed, and this one, its successor, has taken its place.
  case superseded(by: TaskID)
  /// The change is stored, and may affect tasks that wait for this one.
  ///
  /// It replaces ``done`` for an end, for the restart of a task that has ended, and for a removal,
  /// if another task in the store names the task, or the task has a ``TaskDependencies/follower``.
  /// It does so even if nothing changes for others now.
  indirect case doneWithConsequences(Consequences)
  /// An insertion was skipped because the new task would wait for this one forever.
  ///
  /// No task has the ID, or the task has ended without success, or is about to.
  case unmetDependency(TaskID)
  /// An insertion was skipped: this task has the unique key.
  case duplicate(of: TaskID)
  /// An insertion was skipped: another task has the same ID.
  case identityTaken
  /// The change was skipped, because it no longer applies to the task.
  ///
  /// The lease is not the task's present one, the task does not exist, or its state does not allow
  /// the change. If the change was sent before and failed with a transient error
  /// (``PersistenceError``), it may have been stored then.
  case stale
  /// The change was skipped, because the batch was refused.
  ///
  /// Another insertion of the batch could not be stored, so no change of the batch is stored.
  /// Changes after that insertion may all have this outcome.
  case batchRefused
  /// No change of the batch was stored: a value is not the one that the batch expects.
  ///
  /// Every change of the batch has this outcome. Read the value and decide again.
  case valueDiffers
}

/// The effects of the end, the restart or the removal of a task on other tasks.
public struct Consequences: Sendable, Hashable {
  /// The tasks that were cancelled, restarted or removed along with it, in the order of their IDs.
  public var tasks: [TaskID]
  /// The progress of the task's batch, after all of these changes.
  ///
  /// It is `nil` if the follower is no longer in the store, and after a removal, which is not
  /// progress.
  public var batch: BatchProgress?

  /// Makes consequences.
  public init(tasks: [TaskID] = [], batch: BatchProgress? = nil) {
    self.tasks = tasks
    self.batch = batch
  }
}

extension ChangeOutcome {
  /// Whether the change is stored, with or without consequences for other tasks.
  public var isDone: Bool {
    switch self {
    case .done, .doneWithConsequences: true
    case .replaced, .superseded, .unmetDependency, .duplicate, .identityTaken, .stale,
      .valueDiffers, .batchRefused:
      false
    }
  }

  /// The result for most batches with a single change, which is allocated once.
  private static let usualAnswer: [ChangeOutcome] = [.done]

  /// The result for a batch of one change with this outcome.
  var answer: [ChangeOutcome] {
    if case .done = self { Self.usualAnswer } else { [self] }
  }

  /// The effects of the change on other tasks; `nil` if there are none.
  var consequences: Consequences? {
    if case .doneWithConsequences(let consequences) = self { consequences } else { nil }
  }
}

extension TaskChange {
  /// Throws if the change has a value that not every store can store.
  ///
  /// Stores call it before they store a change. A new task must not be running, and counts must not
  /// be negative. No name, key, tag, condition or text of a failure contains a NUL (U+0000).
  ///
  /// Dates are not before `Date.distantPast`, at the start of the year 1, and not after the year
  /// 9999. A time limit and the duration of a lease are at most 100,000,000,000 seconds, some 3,000
  /// years. So ISO 8601 texts, database types, and 64 bits of microseconds can all represent them.
  ///
  /// The name of a value has 1 to 1,024 bytes of UTF-8, and a value at most 65,536 bytes. A value
  /// that a task remembers has at most 131,072 bytes.
  ///
  /// Values that are already stored, by this version or an earlier one, are not checked again.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public func checkForm() throws(TaskQueueError) { try check(.storable) }

  func check(_ form: FormCheck) throws(TaskQueueError) {
    switch self {
    case .insert(let record, let policy):
      try record.check(form)
      guard policy == .replace, let dependencies = record.presentDependencies,
        !dependencies.tasks.isEmpty || dependencies.follower != nil
      else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the new task \(record.id) waits for others, or belongs to a batch, so it can't replace "
          + "another one"
      )
    case .succeed(_, let date, _), .cancel(_, let date, _):
      try form.check(date, "the date of an end")
    case .restart(_, let date, _): try form.check(date, "availableDate")
    case .rebase(let date): try form.check(date, "the date of a rebase")
    case .reschedule(_, let date, let origin):
      try form.check(date, "availableDate")
      try form.check(origin, "countedFrom")
    case .suspend(_, let date, let names, let origin):
      try form.check(date, "the date of a suspension")
      try form.check(origin, "countedFrom")
      for name in names {
        try TaskQueueError.check(valueNamed: name)
        try form.check(text: name, "the name of an awaited value")
      }
    case .retry(_, let date, let retryCount, let failure, let origin):
      try form.check(date, "availableDate")
      try form.check(origin, "countedFrom")
      try TaskQueueError.check(retryCount, "retryCount")
      try form.check(failure, "a failure")
    case .abandon(_, let failure, _), .park(_, let failure): try form.check(failure, "a failure")
    case .unpark(let name, let queue):
      try form.check(text: name, "name")
      try form.check(queue: queue)
    case .prune(_, let date, let count, let now, let queue):
      try form.check(date, "endedBefore")
      try form.check(now, "now")
      try TaskQueueError.check(count, "keepingLatest")
      try form.check(queue: queue)
    case .extend(_, let duration):
      guard duration < .zero else {
        return try form.check(duration, "the duration of a lease")
      }
      throw TaskQueueError(
        .invalidArgument,
        "the duration of a lease is \(duration); give zero or more"
      )
    case .update(_, let update): try update.check(form)
    case .setValue(let name, let old, let new):
      try TaskQueueError.check(valueNamed: name, old, new)
      try form.check(text: name, "the name of a value")
    case .remember(_, let name, let value):
      try form.check(rememberedUnder: name, value)
    case .complete(_, let name, let value):
      try form.check(rememberedUnder: name, value)
      guard value.isEmpty else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the value of the completion '\(name)' is empty, which would mean that it is still awaited; "
          + "give at least one byte"
      )
    case .release, .pause, .resume, .remove: break
    }
  }
}

extension TaskQueueError {
  static func check(text: String, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard text.hasNUL else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) has a NUL (U+0000), which a database can't store; leave it out"
    )
  }

  static func check(texts: Set<String>, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    for text in texts { try check(text: text, name()) }
  }
}

extension String {
  /// Whether the text contains the character NUL (U+0000), which not every store can store in
  /// texts.
  package var hasNUL: Bool {
    // A text from Objective-C has no contiguous bytes.
    unsafe utf8.withContiguousStorageIfAvailable { unsafe $0.contains(0) } ?? utf8.contains(0)
  }

  /// The text with U+FFFD, the replacement character, in place of each NUL.
  var withoutNUL: String {
    guard hasNUL else { return self }
    var scalars = UnicodeScalarView()
    for scalar in unicodeScalars { scalars.append(scalar == "\0" ? "\u{FFFD}" : scalar) }
    return String(scalars)
  }
}

extension TaskQueueError {
  static func check(storable date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError)
  {
    guard let date, !date.isStorable else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(date.timeIntervalSince1970) seconds after 1970; give a date of the years 1 to "
        + "9999"
    )
  }

  static func check(storable duration: Duration?, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    guard let duration, duration > .longestStorable else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(duration); give at most 100000000000 seconds, about 3000 years"
    )
  }
}

extension Duration {
  /// The maximum duration that can be chosen for a task or a lease.
  ///
  /// A date of the next 4,000 years plus this duration is a date that every store can hold.
  static var longestStorable: Duration { .seconds(100_000_000_000) }

  /// The whole microseconds, rounded up: a positive duration has at least one.
  ///
  /// The result is limited to that of the longest storable duration, whatever its sign.
  package var microseconds: Int64 {
    let storable = max(.zero - .longestStorable, min(self, .longestStorable))
    let (seconds, attoseconds) = storable.components
    let (whole, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000_000)
    return seconds * 1_000_000 + whole + (rest > 0 ? 1 : 0)
  }
}

extension TaskQueueError {
  /// The maximum number of bytes of a value: 64 KiB.
  static var maxValueSize: Int { 64 << 10 }
  /// The maximum number of bytes of a value's name, in UTF-8.
  ///
  /// Databases index the name, and index rows can't be much longer.
  static var maxValueNameSize: Int { 1 << 10 }

  /// The maximum number of bytes that a task remembers under a name: 128 KiB.
  ///
  /// A queue has a lower limit, so that the additional bytes of a seal fit.
  static var maxRememberedSize: Int { 128 << 10 }

  /// Checks the name of a value that a task remembers, and the value.
  static func check(
    rememberedUnder name: String,
    _ value: [UInt8]
  ) throws(TaskQueueError) {
    try check(valueNamed: name)
    guard value.count > maxRememberedSize else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the value to remember under '\(name)' has \(value.count) bytes; a task remembers at most "
        + "\(maxRememberedSize) under a name"
    )
  }

  /// Checks the name of a value, and values.
  static func check(valueNamed name: String, _ values: [UInt8]?...) throws(TaskQueueError) {
    let size = name.utf8.count
    guard 1...maxValueNameSize ~= size else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a value has \(size) bytes of UTF-8; give it 1 to \(maxValueNameSize)"
      )
    }
    for value in values {
      guard let value, value.count > maxValueSize else { continue }
      throw TaskQueueError(
        .invalidArgument,
        "a value has \(value.count) bytes; a store holds at most \(maxValueSize) under a name"
      )
    }
  }

  /// The error for a store that refuses every comparison with the value that it has just returned.
  static func endlessConflict(
    in store: any Persistence,
    over what: String,
    changedBy others: String = "other callers"
  ) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "\(what) can't be updated in the store (\(store)): each time, the store reported that it had "
        + "changed since it was read. Either \(others) keep changing it, or the store compares wrongly"
    )
  }
}
