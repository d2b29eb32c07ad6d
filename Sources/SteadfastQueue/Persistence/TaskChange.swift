#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// One step in the life of a task, which a queue decides and a store stores.
///
/// A task that goes *behind its equals* comes after the waiting tasks with the same priority and
/// the same available date.
///
/// More kinds may be added. A store refuses a kind that it does not know by throwing.
@nonexhaustive
public enum TaskChange: Sendable {
  /// A new task.
  ///
  /// If a task has its ID, nothing changes. If that is this task, which was sent before
  /// (``TaskRecord/isStored(as:)``), the outcome is ``ChangeOutcome/done``. Otherwise, it is
  /// ``ChangeOutcome/identityTaken``.
  ///
  /// If no task with its name and its unique key has a role (``TaskRecord/keyRole``), the new task
  /// is the key's holder. Else the policy decides about the new task and its twin, the successor if
  /// there is one, and otherwise the holder. A task that does not run, and whose
  /// ``TaskRecord/expiryDate`` is not later than the new task's ``TaskRecord/createdDate``, is no
  /// twin: no attempt at it begins. If the new task is added, such a task loses its role in the
  /// same change, and changes in no other way.
  ///
  /// - If the twin is a holder that runs, the new task is added as its successor with
  ///   ``UniquePolicy/keep`` and ``UniquePolicy/replace``. With ``UniquePolicy/keep``, this is only
  ///   so if the twin's ``TaskRecord/uniqueUntil`` is not later than the new task's
  ///   ``TaskRecord/createdDate``.
  /// - If the twin is a holder that remembers something, and does not run, the new task is added as
  ///   its successor with ``UniquePolicy/replace``: what it has begun must not go on with another
  ///   payload.
  /// - Else, with ``UniquePolicy/keep``, the outcome is ``ChangeOutcome/duplicate(of:)``, and
  ///   nothing changes. With ``UniquePolicy/replace``, the twin takes the new task over
  ///   (``TaskRecord/takeOver(_:)``), and the outcome is ``ChangeOutcome/replaced(_:)``. If another
  ///   change to the twin is being made, the insertion is refused as with ``UniquePolicy/reject``.
  /// - With ``UniquePolicy/join``, the outcome is ``ChangeOutcome/duplicate(of:)``, which names the
  ///   holder, or the successor if the holder is no twin, and nothing changes.
  /// - With ``UniquePolicy/reject``, it is the same, and no change of the whole batch is stored, as
  ///   when the task's ID is taken.
  ///
  /// A task that has succeeded, and whose ``TaskRecord/uniqueUntil`` is later than the new task's
  /// ``TaskRecord/createdDate``, is a twin too if there is no other, and if the policy is not
  /// ``UniquePolicy/replace``: then the outcome is ``ChangeOutcome/duplicate(of:)``.
  ///
  /// When a holder ends or is removed, its successor becomes the holder in the same change.
  case insert(TaskRecord, onDuplicate: UniquePolicy)
  /// A claimed task has succeeded.
  ///
  /// If `retains` is `true`, the task is retained, else it is removed. It forgets what it
  /// remembers.
  case succeed(Lease, at: Date, retains: Bool)
  /// A claimed task waits again, behind its equals, for a later attempt.
  ///
  /// The task is postponed to this date, with this number of failed attempts. A failure is that of
  /// the attempt, and is noted (``TaskRecord/note(_:)``). Without one, the failures stay as they
  /// were. The available date was counted from the date of the failure or, without one, from
  /// `countedFrom` (``TaskRecord/countedFrom``).
  ///
  /// If the task is the holder of its unique key and has a successor, which does not expire by this
  /// date, no other task waits for it (``TaskDependencies``), and it remembers nothing, it is
  /// removed, and the successor takes its place (``TaskRecord/takePlace(of:)``). The outcome is
  /// ``ChangeOutcome/superseded(by:)``.
  case retry(
    Lease,
    availableDate: Date,
    retryCount: Int,
    failure: TaskFailure?,
    countedFrom: Date? = nil
  )
  /// A claimed task is abandoned, for the reason of the failure, which is noted.
  ///
  /// If `retains` is `true`, the task is retained, else it is removed.
  case abandon(Lease, failure: TaskFailure, retains: Bool)
  /// A claimed task is released: it returns to its place in line as if it had never been claimed.
  case release(Lease)
  /// A claimed task is parked until `unpark`, because its payload could not be decoded.
  ///
  /// The failure is noted.
  case park(Lease, failure: TaskFailure)
  /// All parked tasks of this name in this queue wait again.
  case unpark(name: String, queue: String = "")
  /// A task that has not ended is cancelled.
  ///
  /// If `retains` is `true`, the task is retained, else it is removed.
  case cancel(TaskTarget, at: Date, retains: Bool)
  /// A task that has not ended is paused until it is resumed or restarted.
  ///
  /// A suspended task wakes first (``TaskRecord/wake()``), so that it looks again what it waits for
  /// when it is resumed.
  case pause(TaskTarget)
  /// A paused task waits again, behind its equals, with the date and the retries that it had.
  case resume(TaskID)
  /// A task waits again as if it were new, from this date on, which is the present one.
  ///
  /// The task may be in any state, and may have ended (``TaskRecord/restart(availableDate:)``). One
  /// that has ended, or has lost its role, becomes the holder of its unique key. If another task
  /// has a role, the outcome is ``ChangeOutcome/duplicate(of:)``, and nothing changes.
  ///
  /// If `forgets` is `true`, the task forgets all that it remembers; tasks that are restarted along
  /// with it don't.
  case restart(TaskTarget, availableDate: Date, forgets: Bool = false)
  /// A task that has not ended gets another available date.
  ///
  /// The task goes behind its equals, and its retries stay. A task that waits, is parked or is
  /// paused stays so. A claimed or suspended task waits again. If the date was counted by the
  /// clock, and not chosen, `countedFrom` says from which date (``TaskRecord/countedFrom``).
  case reschedule(TaskTarget, availableDate: Date, countedFrom: Date? = nil)
  /// The choices for a task that waits, is suspended, parked or paused change
  /// (``TaskRecord/apply(_:)``).
  ///
  /// If its priority changes, the task goes behind its equals; else it keeps its place in line. For
  /// a task that has lost its role, the outcome is ``ChangeOutcome/stale``.
  indirect case update(TaskID, TaskUpdate)
  /// A retained task is removed, and leaves no trace.
  case remove(TaskID)
  /// A claim lasts for this duration from now on, by the store's clock.
  ///
  /// It is only for stores that several queues share.
  case extend(Lease, for: Duration)
  /// Retained tasks of this queue that ended in this state are removed.
  ///
  /// A task whose ``TaskRecord/uniqueUntil`` is later than `now` stays, and so does one that holds
  /// up others (``TaskRecord/holdsUpOthers``) or has a ``TaskDependencies/cause``. Any other task
  /// is removed if it ended before the date, or if it is not one of the latest `keepingLatest` of
  /// those. A limit that is `nil` removes none.
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
  /// Each task is rebased (``TaskRecord/rebase(to:)``), whatever its state. Those that wait, and
  /// whose available dates become others, go behind their equals, in the same order. The request of
  /// the next claim decides what is available. If the store's own clock went back, too, a claim
  /// lasts no longer from now on than it was to last when it was made or extended.
  case rebase(Date)
  /// A claimed task remembers these bytes under a name, in place of others if there are some.
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
  /// It goes behind its equals. A claim hands it out from that date on, like a task that waits, and
  /// a release makes it wait then. With `Date.distantFuture` or a later date, no claim does.
  ///
  /// If the task remembers at least one byte under any of the names that it awaits, it wakes at
  /// once (``TaskRecord/wake()``): the completion came before the suspension. The names have the
  /// limits of ``remember(_:named:value:)``.
  case suspend(Lease, until: Date, awaiting: [String], countedFrom: Date? = nil)
  /// A value becomes what a task remembers, if it is open; the task need not be claimed.
  ///
  /// If the task has ended, or remembers anything but a value without bytes under the name, or
  /// nothing at all, the outcome is ``ChangeOutcome/stale``: of several completions, the first
  /// counts. A suspended task wakes (``TaskRecord/wake()``) and goes behind its equals. In any
  /// other state, nothing else changes: the task finds the value when it looks.
  ///
  /// The value has at least one byte, and otherwise the limits of ``remember(_:named:value:)``
  /// hold.
  case complete(TaskID, named: String, value: [UInt8])
  /// The bytes that the store holds under a name become others, if they are the ones that are
  /// named.
  ///
  /// `nil` stands for none: from `nil` means that there is no value, and to `nil` removes it. No
  /// bytes at all, `[]`, are a value. The name has 1 to 1,024 bytes of UTF-8, and a value at most
  /// 65,536 bytes.
  ///
  /// A comparison comes before everything else in its batch. If the present bytes are not the ones
  /// that are named, no change of the batch is stored, and the outcome of each of them is
  /// ``ChangeOutcome/valueDiffers``. So a batch can depend on what its caller has read
  /// (``Persistence/value(named:)``). A batch has at most one change for each name.
  case setValue(named: String, from: [UInt8]?, to: [UInt8]?)
}

extension TaskChange {
  /// The lease that the change names, if it names one.
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
  /// The end of the process, however sudden, while the machine runs on.
  case relaxed
}
