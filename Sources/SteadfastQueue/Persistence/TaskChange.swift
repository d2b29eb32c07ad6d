public import SystemFoundation

/// A change to a task or to a value; a queue decides on it, and a store stores it.
///
/// The functions of this type, such as ``retry(_:availableDate:retryCount:failure:countedFrom:)``,
/// make the changes that a queue sends. A store handles the kinds of changes: for example, it
/// moves all tasks alike, and a ``TaskMove`` says what becomes of the task's state, date and
/// position.
///
/// More kinds may be added. If a store does not know the kind of a change, it throws.
@nonexhaustive
public enum TaskChange: Sendable {
  /// A task is added.
  ///
  /// If the store has a task with the same ID, nothing changes. If that is the same task, sent
  /// before (``TaskRecord/isStored(as:)``), the outcome is ``ChangeOutcome/done``. Otherwise, it is
  /// ``ChangeOutcome/identityTaken``.
  ///
  /// If no task with the same name and unique key is a holder or a successor
  /// (``TaskRecord/keyRole``), the new task becomes the holder of its key. Otherwise, what happens
  /// depends on the policy, and on the new task's *twin*: the successor if there is one, or else
  /// the holder. An expired task that is not running is not a twin, because it gets no further
  /// attempt. A task is expired if its ``TaskRecord/expiryDate`` is not later than the new task's
  /// ``TaskRecord/createdDate``. If the new task is added, the ``TaskRecord/keyRole`` of an expired
  /// task becomes `nil` in the same change.
  ///
  /// - If the twin is a holder that is running, ``UniquePolicy/replace`` adds the new task as its
  ///   successor. So does ``UniquePolicy/keep``, unless the twin's ``TaskRecord/uniqueUntil`` is
  ///   later than the new task's ``TaskRecord/createdDate``.
  /// - If the twin is a holder that is not running, and its memory is not empty,
  ///   ``UniquePolicy/replace`` adds the new task as its successor: the twin has started work that
  ///   must not continue with another payload.
  /// - Otherwise, with ``UniquePolicy/keep``, the outcome is ``ChangeOutcome/duplicate(of:)``, and
  ///   nothing changes. With ``UniquePolicy/replace``, the twin takes over the new task
  ///   (``TaskRecord/takeOver(_:)``), and the outcome is ``ChangeOutcome/replaced(_:)``. If another
  ///   change to the twin is being stored, this does the same as ``UniquePolicy/reject``.
  /// - With ``UniquePolicy/join``, the outcome is ``ChangeOutcome/duplicate(of:)`` and nothing
  ///   changes. The outcome names the holder, or the successor if the holder is not a twin.
  /// - With ``UniquePolicy/reject``, the outcome is the same, and no change of the whole batch is
  ///   stored. This is also so if the task's ID is taken.
  ///
  /// If there is no other twin and the policy is not ``UniquePolicy/replace``, a task that has
  /// succeeded is a twin, too, if its ``TaskRecord/uniqueUntil`` is later than the new task's
  /// ``TaskRecord/createdDate``. The outcome is then ``ChangeOutcome/duplicate(of:)``.
  ///
  /// When a holder ends or is removed, its successor becomes the holder in the same change.
  case insert(TaskRecord, onDuplicate: UniquePolicy)
  /// A task that stays in the store changes its state, its available date or its position.
  ///
  /// The change applies if the target is the task's current lease or, without a lease, if the task
  /// is not claimed, and if ``TaskMove/state(from:)`` returns a state. Otherwise, the outcome is
  /// ``ChangeOutcome/stale``. The store calls ``TaskRecord/move(by:)``, ends the task's
  /// lease, if any, and moves the task behind the waiting tasks with the same priority and
  /// available date, unless the move has ``TaskMove/keepsPosition``.
  ///
  /// If the move has ``TaskMove/yieldsToSuccessor``, the task is removed instead if all of this is
  /// so: it is the holder of its unique key; it has a successor that does not expire by the
  /// available date; no other task waits for it (``TaskDependencies``); and its memory is empty.
  /// The successor then takes its place (``TaskRecord/takePlace(of:)``), and the outcome is
  /// ``ChangeOutcome/superseded(by:)``.
  ///
  /// If the move has ``TaskMove/takesKey`` and the task's ``TaskRecord/keyRole`` is `nil`, the task
  /// becomes the holder of its unique key. If another task is the holder, the outcome is
  /// ``ChangeOutcome/duplicate(of:)``, and nothing changes. If the task had ended, the move may
  /// restart other tasks (``TaskDependencies``). If the move has ``TaskMove/forgetsMemory``, the
  /// task's memory is deleted, but not the memory of those other tasks.
  indirect case move(TaskTarget, TaskMove)
  /// A task that has not ended ends.
  ///
  /// If ``TaskEnd/retains`` is `true`, the task is retained: its state and its
  /// ``TaskRecord/finishedDate`` become those of the end, its failure is recorded
  /// (``TaskRecord/note(_:)``), and its ``TaskRecord/keyRole`` becomes `nil`. Otherwise, the task
  /// is removed. If it has succeeded, its memory is deleted in any case.
  case end(TaskTarget, TaskEnd)
  /// The options of a waiting, suspended, parked or paused task change
  /// (``TaskRecord/apply(_:)``).
  ///
  /// If its priority changes, the task goes behind the waiting tasks with the same priority and
  /// available date; otherwise it keeps its position. If the task has a unique key, but its
  /// ``TaskRecord/keyRole`` is `nil`, the outcome is ``ChangeOutcome/stale``.
  indirect case update(TaskID, TaskUpdate)
  /// A retained task is removed.
  case remove(TaskID)
  /// A lease lasts for this duration from now on, by the store's clock.
  ///
  /// Only stores that several queues share get this change.
  case extend(Lease, for: Duration)
  /// The command for a claimed task is replaced, if it is the expected one; `nil` means no command.
  ///
  /// The process that performs the task carries out the command. Until then, a change that ends
  /// the attempt without success (``leaseEndedWithoutSuccess``) is skipped, unless its
  /// ``Lease/command`` is this one; the outcome is ``ChangeOutcome/commanded(_:)``. A change that
  /// moves, suspends or ends the task also removes the command. When the claim expires, the command
  /// stays, and the next claim returns it with the task.
  ///
  /// If the task is not running, or has another command than the expected one, the outcome is
  /// ``ChangeOutcome/stale``. Only stores that several queues share get this change.
  case command(TaskID, from: StoredCommand?, to: StoredCommand?)
  /// The memory of a task changes, or the task waits for its memory to change.
  case memory(MemoryChange)
  /// Any number of tasks change.
  indirect case broad(BroadChange)
  /// The bytes stored under a name are replaced if they equal the expected ones.
  ///
  /// `nil` means no value: `from: nil` expects that there is none, and `to: nil` removes the value.
  /// An empty array, `[]`, is a value. The name has 1 to 1,024 bytes of UTF-8, and a value at most
  /// 65,536 bytes.
  ///
  /// The store compares before it applies any change of the batch. If the current bytes are not the
  /// expected ones, no change of the batch is stored, and the outcome of each of them is
  /// ``ChangeOutcome/valueDiffers``. So a batch can depend on values that its caller has read
  /// (``Persistence/value(named:)``). A batch has at most one such change for each name.
  case setValue(named: String, from: [UInt8]?, to: [UInt8]?)
}

/// The moves of tasks.
extension TaskChange {
  /// A claimed task waits again for a later attempt, behind the waiting tasks with the same
  /// priority and available date.
  ///
  /// The task's available date and its number of failed attempts are set to these values. `failure`
  /// is the attempt's failure, and is recorded (``TaskRecord/note(_:)``). If it is `nil`, the
  /// recorded failures stay. The available date was calculated from the failure's date or, without
  /// a failure, from `countedFrom` (``TaskRecord/countedFrom``).
  ///
  /// The task's successor may take its place (``TaskMove/yieldsToSuccessor``).
  public static func retry(
    _ lease: Lease,
    availableDate: Date,
    retryCount: Int,
    failure: TaskFailure?,
    countedFrom origin: Date? = nil
  ) -> TaskChange {
    let origin = failure?.date ?? origin
    let move = TaskMove(
      .retry,
      availableDate: availableDate,
      countedFrom: origin,
      retryCount: retryCount,
      failure: failure
    )
    return .move(.claimed(lease), move)
  }

  /// A claimed task is released: it waits again at its previous position, as if it had never been
  /// claimed.
  public static func release(_ lease: Lease) -> TaskChange {
    .move(.claimed(lease), TaskMove(.release))
  }

  /// A claimed task is parked until ``BroadChange/unpark(name:queue:below:)``, because its payload
  /// can't be decoded.
  ///
  /// The failure is recorded. ``TaskRecord/parkedVersion`` becomes `version`: the greatest payload
  /// version that the handler can decode, or `nil` if this is not known.
  public static func park(
    _ lease: Lease,
    failure: TaskFailure,
    knownVersion version: Int? = nil
  ) -> TaskChange {
    .move(.claimed(lease), TaskMove(.park, failure: failure, knownVersion: version))
  }

  /// A task that has not ended is paused until it is resumed or restarted.
  ///
  /// A suspended task wakes first (``TaskRecord/wake()``). So after it is resumed, its handler
  /// checks whether the values that the task awaits have arrived.
  public static func pause(_ target: TaskTarget) -> TaskChange { .move(target, TaskMove(.pause)) }

  /// A paused task waits again, behind the waiting tasks with the same priority and available date.
  ///
  /// The task's available date and retries stay.
  public static func resume(_ id: TaskID) -> TaskChange { .move(.unclaimed(id), TaskMove(.resume)) }

  /// A task waits again as if it were new; the available date is the current date.
  ///
  /// The task may be in any state, and may have ended. If `forgets` is `true`, its memory is
  /// deleted.
  public static func restart(
    _ target: TaskTarget,
    availableDate: Date,
    forgets: Bool = false
  ) -> TaskChange {
    let move = TaskMove(
      .restart,
      availableDate: availableDate,
      countedFrom: availableDate,
      forgetsMemory: forgets
    )
    return .move(target, move)
  }

  /// A task that has not ended gets another available date.
  ///
  /// The task goes behind the waiting tasks with the same priority and available date, and its
  /// retries stay. A waiting, parked or paused task keeps its state. A claimed or suspended task
  /// waits again. If the date was calculated from a date of the queue's clock, `countedFrom` is
  /// that date; if a caller chose the date, it is `nil` (``TaskRecord/countedFrom``).
  public static func reschedule(
    _ target: TaskTarget,
    availableDate: Date,
    countedFrom origin: Date? = nil
  ) -> TaskChange {
    .move(target, TaskMove(.reschedule, availableDate: availableDate, countedFrom: origin))
  }
}

/// The ends of tasks.
extension TaskChange {
  /// A claimed task has succeeded.
  public static func succeed(_ lease: Lease, at date: Date, retains: Bool) -> TaskChange {
    .end(.claimed(lease), TaskEnd(.succeeded, date: date, retains: retains))
  }

  /// A claimed task is abandoned, and the failure is recorded.
  public static func abandon(_ lease: Lease, failure: TaskFailure, retains: Bool) -> TaskChange {
    .end(
      .claimed(lease),
      TaskEnd(.abandoned, date: failure.date, failure: failure, retains: retains)
    )
  }

  /// A task that has not ended is cancelled.
  public static func cancel(_ target: TaskTarget, at date: Date, retains: Bool) -> TaskChange {
    .end(target, TaskEnd(.cancelled, date: date, retains: retains))
  }
}

/// The changes to memories, and to any number of tasks.
extension TaskChange {
  /// The change ``MemoryChange/remember(_:named:value:)``.
  public static func remember(_ lease: Lease, named name: String, value: [UInt8]) -> TaskChange {
    .memory(.remember(lease, named: name, value: value))
  }

  /// The change ``MemoryChange/suspend(_:until:awaiting:countedFrom:)``.
  public static func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date? = nil
  ) -> TaskChange {
    .memory(.suspend(lease, until: date, awaiting: names, countedFrom: origin))
  }

  /// The change ``MemoryChange/complete(_:named:value:)``.
  public static func complete(_ id: TaskID, named name: String, value: [UInt8]) -> TaskChange {
    .memory(.complete(id, named: name, value: value))
  }

  /// The change ``BroadChange/unpark(name:queue:below:)``.
  public static func unpark(
    name: String,
    queue: String = "",
    below version: Int? = nil
  ) -> TaskChange {
    .broad(.unpark(name: name, queue: queue, below: version))
  }

  /// The change ``BroadChange/prune(_:endedBefore:keepingLatest:now:queue:)``.
  public static func prune(
    _ state: TaskState,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date,
    queue: String = ""
  ) -> TaskChange {
    .broad(.prune(state, endedBefore: date, keepingLatest: count, now: now, queue: queue))
  }

  /// The change ``BroadChange/rebase(_:)``.
  public static func rebase(_ date: Date) -> TaskChange { .broad(.rebase(date)) }
}

/// A change to the memory of a task.
@nonexhaustive
public enum MemoryChange: Sendable {
  /// Bytes are stored under a name in a claimed task's memory, and replace any previous ones.
  ///
  /// The task's ``TaskRecord/interruptionCount`` becomes 0. The name has 1 to 1,024 bytes of UTF-8,
  /// and the value at most 131,072 bytes. A value without bytes is *open*: it waits for a
  /// ``complete(_:named:value:)``.
  ///
  /// A batch may have several of these changes for one task, with different names, if it has no
  /// other change for the task.
  case remember(Lease, named: String, value: [UInt8])
  /// A claimed task is suspended until a date (``TaskRecord/suspend(until:countedFrom:)``).
  ///
  /// The task goes behind the waiting tasks with the same priority and available date. From the
  /// date on, a claim hands it out like a waiting task. After a release, the task waits until the
  /// date. If the date is `Date.distantFuture` or later, no claim hands the task out.
  ///
  /// If the task's memory has at least one byte under any of the awaited names, a completion came
  /// before the suspension. So the task wakes at once (``TaskRecord/wake()``). The names have the
  /// limits of ``remember(_:named:value:)``.
  case suspend(Lease, until: Date, awaiting: [String], countedFrom: Date? = nil)
  /// Bytes are stored as an open value in a task's memory; the task need not be claimed.
  ///
  /// The outcome is ``ChangeOutcome/stale`` if the task has ended, if there is no value under the
  /// name, or if the value is not open (``remember(_:named:value:)``). So the first of several
  /// completions counts. A suspended task wakes (``TaskRecord/wake()``) and goes behind the waiting
  /// tasks with the same priority and available date. In any other state, only the value changes.
  ///
  /// The value has 1 to 131,072 bytes.
  case complete(TaskID, named: String, value: [UInt8])
}

/// A change to any number of tasks.
@nonexhaustive
public enum BroadChange: Sendable {
  /// The parked tasks with this name in this queue wait again.
  ///
  /// With `below`, these are only the tasks whose ``TaskRecord/parkedVersion`` is `nil` or less
  /// than `below`: an older version of the program has parked them.
  case unpark(name: String, queue: String = "", below: Int? = nil)
  /// Old retained tasks of this queue that ended in this state are removed.
  ///
  /// A task stays if its ``TaskRecord/uniqueUntil`` is later than `now`, if it blocks later tasks
  /// (``TaskRecord/blocksOrder``), or if it has a ``TaskDependencies/cause``. Of all other tasks,
  /// those that ended before `endedBefore` are removed, and all but the latest `keepingLatest`. If
  /// one of these limits is `nil`, it removes no task.
  case prune(
    TaskState,
    endedBefore: Date?,
    keepingLatest: Int?,
    now: Date,
    queue: String = ""
  )
  /// The clock was set back to this date; only for stores whose queues have one clock
  /// (``Persistence/hasOneClock``).
  ///
  /// Each task is rebased (``TaskRecord/rebase(to:)``), whatever its state. Waiting tasks whose
  /// available dates change go behind the other tasks with the same priority and available date,
  /// and keep their order among each other. If the store's own clock was set back, too, each lease
  /// ends after at most the duration for which it was made or last extended.
  case rebase(Date)
}

extension TaskChange {
  /// The lease that the change names; `nil` if it names none.
  package var lease: Lease? {
    switch self {
    case .move(.claimed(let lease), _), .end(.claimed(let lease), _), .extend(let lease, _),
      .memory(.remember(let lease, _, _)), .memory(.suspend(let lease, _, _, _)):
      lease
    default: nil
    }
  }

  /// The lease whose holder must know the command for the task, because the change ends the attempt
  /// without success; `nil` if the change does not.
  public var leaseEndedWithoutSuccess: Lease? {
    switch self {
    case .move(.claimed(let lease), _), .memory(.suspend(let lease, _, _, _)): lease
    case .end(.claimed(let lease), let end): end.state == .succeeded ? nil : lease
    default: nil
    }
  }

  /// The ID of the task that the change is for; `nil` for an insertion, and for a change that is
  /// not for exactly one task.
  package var taskID: TaskID? {
    switch self {
    case .move(let target, _), .end(let target, _): target.id
    case .update(let id, _), .remove(let id), .memory(.complete(let id, _, _)),
      .command(let id, _, _):
      id
    case .extend, .memory(.remember), .memory(.suspend): lease?.id
    default: nil
    }
  }

  /// How the change moves a task; `nil` if it moves none.
  package var move: TaskMove? { if case .move(_, let move) = self { move } else { nil } }

  /// How the change ends a task; `nil` if it ends none.
  package var end: TaskEnd? { if case .end(_, let end) = self { end } else { nil } }

  /// The ID of the task that the change adds; `nil` if it adds none.
  var newTaskID: TaskID? {
    if case .insert(let record, _) = self { record.id } else { nil }
  }
}

/// The task that a change concerns, and whether the caller has claimed the task.
public enum TaskTarget: Sendable, Hashable {
  /// A task that the caller has claimed; the lease is the proof.
  case claimed(Lease)
  /// A task that is not claimed. If it is claimed, the outcome is ``ChangeOutcome/stale``.
  case unclaimed(TaskID)

  /// The task's ID.
  public var id: TaskID {
    switch self {
    case .claimed(let lease): lease.id
    case .unclaimed(let id): id
    }
  }
}

/// What a change must survive once a store has acknowledged it.
public enum Durability: Sendable, Hashable {
  /// A power failure.
  case durable
  /// A crash of the process, but not a power failure.
  case relaxed
}

/// The result of a change.
///
/// More outcomes may be added.
@nonexhaustive
public enum ChangeOutcome: Sendable, Hashable {
  /// The change is stored.
  case done
  /// An insertion is stored: this task, which has the same unique key, has taken over the new one.
  case replaced(TaskID)
  /// The changed task was removed, and this task, its successor, has taken its place.
  case superseded(by: TaskID)
  /// The change is stored, and may affect tasks that wait for the changed task.
  ///
  /// This is the outcome, instead of ``done``, when a task ends, when a task that has ended is
  /// restarted, and when a task is removed, if the task is one of another task's
  /// ``TaskDependencies/tasks``, or has a ``TaskDependencies/follower``. It is so even if no other
  /// task has changed.
  indirect case doneWithConsequences(Consequences)
  /// An insertion was skipped because the new task would wait forever for the task with this ID.
  ///
  /// No task has the ID, or the task has ended without success, or a change that ends it without
  /// success is being stored.
  case unmetDependency(TaskID)
  /// An insertion or a restart was skipped: the task with this ID has the same unique key.
  case duplicate(of: TaskID)
  /// An insertion was skipped: another task has the same ID.
  case identityTaken
  /// The change was skipped, because it no longer applies to the task.
  ///
  /// The lease is not the task's current one, the task does not exist, or its state does not allow
  /// the change.
  case stale
  /// The change was skipped, because the task has this command, and the change does not carry it
  /// out (``TaskChange/command(_:from:to:)``).
  case commanded(StoredCommand)
  /// The change was skipped, because an insertion of the same batch could not be stored.
  ///
  /// No change of the batch is stored. All changes after that insertion may have this outcome.
  case batchRefused
  /// No change of the batch was stored: a value is not the one that the batch expects.
  ///
  /// Every change of the batch has this outcome. Read the value and decide again.
  case valueDiffers
}

/// How other tasks have changed because a task has ended, was restarted or was removed.
public struct Consequences: Sendable, Hashable {
  /// The other tasks that were cancelled, restarted or removed, in the order of their IDs.
  public var tasks: [TaskID]
  /// The progress of the task's batch, after all of these changes.
  ///
  /// It is `nil` if the task belongs to no batch, if the batch's follower is no longer in the
  /// store, and if the task was removed.
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
    case .replaced, .superseded, .unmetDependency, .duplicate, .identityTaken, .stale, .commanded,
      .valueDiffers, .batchRefused:
      false
    }
  }

  private static let onlyDone: [ChangeOutcome] = [.done]

  /// An array with only this outcome; for ``done``, it is allocated only once.
  var inArray: [ChangeOutcome] {
    if case .done = self { Self.onlyDone } else { [self] }
  }

  /// The effects of the change on other tasks; `nil` if there are none.
  var consequences: Consequences? {
    if case .doneWithConsequences(let consequences) = self { consequences } else { nil }
  }
}

extension TaskChange {
  /// Throws if the change has a value that not every store can store.
  ///
  /// Stores call this method before they store a change. It throws unless all of this is so:
  /// - A new task is not running.
  /// - No count is negative.
  /// - No name, key, tag, condition or error text contains a NUL (U+0000).
  /// - No date is before `Date.distantPast`, which is at the start of the year 1, or after the year
  ///   9999. A time limit and the duration of a lease are at most 100,000,000,000 seconds, about
  ///   3,000 years. So ISO 8601 strings, database types, and 64 bits of microseconds can represent
  ///   all of them.
  /// - The name of a value has 1 to 1,024 bytes of UTF-8. The value has at most 65,536 bytes, or
  ///   131,072 bytes in a task's memory.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public func checkForm() throws(TaskQueueError) { try check(.storable) }

  func check(_ checker: ValueChecker) throws(TaskQueueError) {
    switch self {
    case .insert(let record, let policy):
      try record.check(checker)
      guard policy == .replace, let dependencies = record.presentDependencies,
        !dependencies.tasks.isEmpty || dependencies.follower != nil
      else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the new task \(record.id) "
          + (dependencies.tasks.isEmpty ? "belongs to a batch" : "waits for other tasks")
          + ", so it can't replace a task with its unique key; use another policy than .replace"
      )
    case .move(_, let move):
      try checker.check(move.availableDate, "availableDate")
      try checker.check(move.failure, "a failure")
      try checker.check(move.countedFrom, "countedFrom")
      try TaskQueueError.check(move.retryCount, "retryCount")
    case .end(_, let end):
      if let failure = end.failure { return try checker.check(failure, "a failure") }
      try checker.check(end.date, "the date at which a task ends")
    case .broad(.rebase(let date)): try checker.check(date, "the date to rebase tasks to")
    case .memory(.suspend(_, let date, let names, let origin)):
      try checker.check(date, "the date until which a task is suspended")
      try checker.check(origin, "countedFrom")
      for name in names {
        try TaskQueueError.check(valueNamed: name)
        try checker.check(string: name, "the name of an awaited value")
      }
    case .broad(.unpark(let name, let queue, _)):
      try checker.check(string: name, "name")
      try checker.check(queue: queue)
    case .broad(.prune(_, let date, let count, let now, let queue)):
      try checker.check(date, "endedBefore")
      try checker.check(now, "now")
      try TaskQueueError.check(count, "keepingLatest")
      try checker.check(queue: queue)
    case .extend(_, let duration):
      guard duration < .zero else {
        return try checker.check(duration, "the duration of a lease")
      }
      throw TaskQueueError(
        .invalidArgument,
        "the duration of a lease is \(duration); give zero or more"
      )
    case .update(_, let update): try update.check(checker)
    case .setValue(let name, let old, let new):
      try TaskQueueError.check(valueNamed: name, old, new)
      try checker.check(string: name, "the name of a value")
    case .memory(.remember(_, let name, let value)):
      try checker.check(rememberedUnder: name, value)
    case .memory(.complete(_, let name, let value)):
      try checker.check(rememberedUnder: name, value)
      guard value.isEmpty else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the value to complete '\(name)' with is empty, like a value that is still awaited; give at "
          + "least one byte"
      )
    case .remove, .command: break
    }
  }
}

extension TaskQueueError {
  static func check(string: String, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard string.hasNUL else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) contains a NUL (U+0000), which a database can't store; leave the NUL out"
    )
  }

  static func check(strings: Set<String>, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    for string in strings { try check(string: string, name()) }
  }
}

extension String {
  /// Whether the string contains the character NUL (U+0000), which not every store can store.
  package var hasNUL: Bool {
    // A string from Objective-C has no contiguous bytes.
    unsafe utf8.withContiguousStorageIfAvailable { unsafe $0.contains(0) } ?? utf8.contains(0)
  }

  /// The string with U+FFFD, the replacement character, in place of each NUL.
  var withoutNUL: String {
    guard hasNUL else { return self }
    var scalars = UnicodeScalarView()
    for scalar in unicodeScalars { scalars.append(scalar == "\0" ? "\u{FFFD}" : scalar) }
    return String(scalars)
  }

  /// Returns the beginning of the string whose UTF-8 has at most this length, in bytes.
  func prefix(ofLength length: Int) -> String {
    guard utf8.count > length else { return self }
    var text = self
    text.makeContiguousUTF8()
    // A character that is cut in two becomes a replacement character, which is removed.
    let head = String(decoding: text.utf8.prefix(length), as: UTF8.self)
    return head.last == "\u{FFFD}" ? String(head.dropLast()) : head
  }
}

extension TaskQueueError {
  static func check(storable date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError)
  {
    guard let date, !date.isStorable else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(date.timeIntervalSince1970) seconds after 1970; give a date in the years 1 to "
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
  /// Every store can store the sum of this duration and any date in the next 4,000 years.
  static var longestStorable: Duration { .seconds(100_000_000_000) }

  /// The duration in microseconds, rounded up, so that a positive duration has at least one.
  ///
  /// The result is clamped to the range from minus ``longestStorable`` to ``longestStorable``.
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
  /// Databases index the name, and a row of an index can't be much longer.
  static var maxValueNameSize: Int { 1 << 10 }

  /// The maximum number of bytes of a value in a task's memory: 128 KiB.
  ///
  /// A queue has a lower limit, so that encryption (``PayloadSeal``) may add bytes to the value.
  static var maxRememberedSize: Int { 128 << 10 }

  static func check(
    rememberedUnder name: String,
    _ value: [UInt8]
  ) throws(TaskQueueError) {
    try check(valueNamed: name)
    guard value.count > maxRememberedSize else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the value for '\(name)' in a task's memory has \(value.count) bytes; give at most "
        + "\(maxRememberedSize)"
    )
  }

  static func check(valueNamed name: String, _ values: [UInt8]?...) throws(TaskQueueError) {
    let size = name.utf8.count
    guard 1...maxValueNameSize ~= size else {
      throw TaskQueueError(
        .invalidArgument,
        "the name '\(name.prefix(80))' of a value has \(size) bytes of UTF-8; give it 1 to "
          + "\(maxValueNameSize)"
      )
    }
    for value in values {
      guard let value, value.count > maxValueSize else { continue }
      throw TaskQueueError(
        .invalidArgument,
        "the value '\(name)' has \(value.count) bytes; give at most \(maxValueSize)"
      )
    }
  }

  /// Returns the error for a value that has changed each time between reading and writing it.
  static func endlessConflictError(
    in store: any Persistence,
    over what: String,
    changedBy others: String = "other callers"
  ) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "\(what) can't be updated in the store (\(store)): each time, the store reported that the "
        + "value had changed since it was read. Either \(others) keep changing the value, or the "
        + "store compares wrongly"
    )
  }
}
