#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// One step in the life of a task, as a queue decides it and a store keeps it.
///
/// More kinds may be added; a store refuses those that it does not know by throwing.
@nonexhaustive
public enum TaskChange: Sendable {
  /// A new task.
  ///
  /// If a task that the store knows bears the same unique key, the policy decides. With
  /// ``UniquePolicy/keep`` the outcome is ``ChangeOutcome/duplicate(of:)`` and nothing changes. With
  /// ``UniquePolicy/replace`` a twin that is not running is removed, which the outcome tells unless
  /// the twin had ended, and one that is running loses the key and goes on. With
  /// ``UniquePolicy/reject`` the outcome is a duplicate too, and nothing of the whole batch is kept, as
  /// if its identity were taken; so it is with a twin to be replaced that is just being changed.
  case insert(TaskRecord, onDuplicate: UniquePolicy)
  /// A claimed task is done. It is kept if asked for, else removed.
  case succeed(Lease, at: Date, keeps: Bool)
  /// A claimed task waits again, behind its equals, put off to this date and with this number of
  /// failed attempts. A failure is the attempt's and is noted (``TaskRecord/note(_:)``); without one, the
  /// failures stay as they were.
  case retry(Lease, availableDate: Date, retryCount: Int, failure: TaskFailure?)
  /// A claimed task is given up, for the failure's reason, which is noted. It is kept if asked for,
  /// else removed.
  case abandon(Lease, failure: TaskFailure, keeps: Bool)
  /// A claimed task is put back as if it had never been claimed, to its place in line.
  case release(Lease)
  /// A claimed task is put aside until `unpark`: its payload could not be decoded. The failure is
  /// noted.
  case park(Lease, failure: TaskFailure)
  /// All parked tasks of this name wait again.
  case unpark(name: String)
  /// A task that has not ended is taken out. It is kept if asked for, else removed.
  case cancel(TaskTarget, at: Date, keeps: Bool)
  /// A task that has not ended is set aside until it is resumed or restarted.
  case pause(TaskTarget)
  /// A paused task waits again, behind its equals, with the date and the retries that it had.
  case resume(TaskID)
  /// A task waits again as if it were new, from this date on, whatever state it was in, one that it
  /// ended in too (``TaskRecord/makeNew(availableDate:)``).
  case restart(TaskTarget, availableDate: Date)
  /// A task that has not ended may be performed from this date on, which was chosen, and goes behind
  /// its equals; its retries stay. One that waits, is parked or is paused stays so; a claimed one waits again.
  case reschedule(TaskTarget, availableDate: Date)
  /// What was chosen for a task that waits, is parked or is paused is changed
  /// (``TaskRecord/apply(_:)``). If its priority becomes another one, it goes behind its equals; else it
  /// keeps its place in line.
  indirect case update(TaskID, TaskUpdate)
  /// A task that has ended and was kept is removed, and leaves no trace.
  case remove(TaskID)
  /// A claim lasts until this date; only for stores that several queues share.
  case extend(Lease, until: Date)
  /// Kept tasks that ended in this state leave: those that ended before the date, and all but the
  /// latest of them.
  case prune(TaskState, endedBefore: Date?, keepingLatest: Int?)
  /// The clock went back to this date.
  ///
  /// Each task that has not ended is rebased (``TaskRecord/rebase(to:)``), and those that wait and were
  /// moved by it go behind their equals, in the same order. What is available is decided by the
  /// request of the next claim.
  case rebase(Date)
}

extension TaskChange {
  /// The lease that the change names, if it names one.
  var lease: Lease? {
    switch self {
    case .succeed(let lease, _, _), .retry(let lease, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _),
      .cancel(.claimed(let lease), _, _), .pause(.claimed(let lease)),
      .restart(.claimed(let lease), _), .reschedule(.claimed(let lease), _):
      lease
    case .insert, .unpark, .cancel, .pause, .resume, .restart, .reschedule, .update, .remove,
      .prune, .rebase:
      nil
    }
  }
}

/// The task that a change concerns, and by what right it is changed.
public enum TaskTarget: Sendable, Hashable {
  /// A task that the one who changes it has claimed.
  case claimed(Lease)
  /// A task that nobody has claimed; the change is stale if somebody has.
  case unclaimed(TaskID)

  /// The task.
  public var id: TaskID {
    switch self {
    case .claimed(let lease): lease.id
    case .unclaimed(let id): id
    }
  }
}

/// What became of a change.
///
/// More kinds may be added.
@nonexhaustive
public enum ChangeOutcome: Sendable, Hashable {
  /// It is kept.
  case done
  /// An insertion is kept, and this task with the same unique key, which had not ended, was removed
  /// for it.
  case replaced(TaskID)
  /// An insertion was skipped: this task bears the unique key.
  case duplicate(of: TaskID)
  /// An insertion was skipped: another task has the same identity.
  case identityTaken
  /// It was skipped: the lease is not the task's present one, the task is gone, or it is not in a
  /// state to which the change applies.
  case stale
  /// It was skipped because another insertion of the batch could not be kept, and then none of the
  /// batch is.
  case batchRefused
}

/// What a change must survive before a store says that it is kept.
public enum Durability: Sendable, Hashable {
  /// A power cut.
  case durable
  /// The end of the process, however sudden, while the machine runs on.
  case relaxed
}
