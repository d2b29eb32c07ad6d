#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// One step in the life of a task, as a queue decides it and a store keeps it.
public enum TaskChange: Sendable {
  /// A new task.
  ///
  /// If a task that the store knows bears the same unique key, the outcome is
  /// ChangeOutcome/duplicate(of:) and nothing changes; unless the new task replaces it: then a
  /// twin that is not running is removed, and one that is running loses the key and goes on.
  case insert(TaskRecord, replacesTwin: Bool)
  /// A claimed task is done. It is kept if asked for, else removed.
  case succeed(Lease, at: Date, keeps: Bool)
  /// A claimed task waits again, behind its equals, with this date and this number of failed
  /// attempts. An error is the attempt's; without one, the last error stays as it was.
  case retry(Lease, availableDate: Date, retryCount: Int, failure: TaskFailure?)
  /// A claimed task is given up, for the failure's reason. It is kept if asked for, else removed.
  case abandon(Lease, failure: TaskFailure, keeps: Bool)
  /// A claimed task is put back as if it had never been claimed, to its place in line.
  case release(Lease)
  /// A claimed task is put aside until `unpark`: its payload could not be decoded.
  case park(Lease, failure: TaskFailure)
  /// All parked tasks of this name wait again.
  case unpark(name: String)
  /// Kept tasks that ended in this state leave: those that ended before the date, and all but the
  /// latest of them.
  case prune(TaskState, endedBefore: Date?, keepingLatest: Int?)
  /// The clock went back to this date.
  ///
  /// Each task that has not ended is rebased (TaskRecord/rebase(to:)), and those that wait and were
  /// moved by it go behind their equals, in the same order. What is available is decided by the
  /// request of the next claim.
  case rebase(Date)
}
