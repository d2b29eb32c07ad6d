/// The tasks that a task waits for, and the task that waits for its batch.
///
/// ``TaskOptions/dependencies`` and a batch's follower set them; see <doc:TasksThatWait>.
///
/// ## What a store does
///
/// A change to a task has effects on the tasks that wait for it. A store stores these effects in
/// the same change. The outcome of the change is ``ChangeOutcome/doneWithConsequences(_:)`` if a
/// task in the store *names* the changed task (has it in ``tasks``), or if the changed task has a
/// ``follower``.
///
/// - **An insertion.** The outcome is ``ChangeOutcome/unmetDependency(_:)`` if a task that the new
///   task names is not in the store, or if it has ended without success and the ``rule`` is
///   ``DependencyRule/allSucceeded``. If there are several such tasks, the outcome has the lowest
///   ID. No change of the batch is then stored. A new task that has already ended, or that is a
///   duplicate, is not checked. The store replaces the new task's ``failed``, ``cause`` and
///   ``batch``: ``failed`` gets the named tasks that have ended without success, in the order of
///   their IDs. If the new task has a ``follower``, the ``BatchProgress/total`` of the follower's
///   ``batch`` grows by 1, even if the follower is added later in the same batch of changes, or if
///   an earlier task with the same ID was removed. If the new task has already ended, the
///   follower's ``batch`` counts it as ended, too.
/// - **An end.** The follower's ``batch`` counts the ended task. If the task did not succeed, it is
///   recorded in ``failed`` of the tasks that name it, and of its follower (``note(_:endedAs:)``).
///   If one of these tasks has the rule ``DependencyRule/allSucceeded``, has not ended and is not
///   running, it is cancelled, with the same date and the same `retains`. Its cancellation has the
///   same effects on the tasks that wait for it, and so on. The ``cause`` of a cancelled task is
///   the lowest ID among the tasks that it waits for and that have ended in this change. The tasks
///   end in the order of their IDs.
/// - **A restart of a task that has ended.** The follower's ``batch`` stops counting the task as
///   ended, and the task is removed from ``failed`` of all tasks that wait for it. The cancelled
///   tasks whose ``cause`` is the task are restarted with the same date, then the tasks whose cause
///   is one of these, and so on. In the order of their IDs, they go behind the waiting tasks with
///   the same priority and available date. But a task stays cancelled if its ``failed`` is not
///   empty, if more tasks of its ``batch`` have failed than ``failed`` lists, or if another task
///   has its unique key. Its cause is then the lowest ID in ``failed`` whose task is in the store,
///   or `nil` if there is none. If two tasks with the same unique key would be restarted, only one
///   is: the one whose cause was restarted first or, if that is the same, the one with the lower
///   ID.
/// - **A removal.** The cancelled tasks whose ``cause`` is the task are removed with it, then the
///   tasks whose cause is one of these, and so on. Pruning the task has the same effect. Otherwise,
///   pruning never removes a task that has a ``cause``.
/// - **A retry.** A task that has a ``follower``, or that a task in the store names, is never
///   superseded (``ChangeOutcome/superseded(by:)``): it is retried, and its successor waits.
///
/// The queue guarantees that no task in the store names a task that is added later, except that a
/// task's follower may be added later in the same batch of changes. The queue also guarantees that
/// there is no circle of tasks that wait for each other.
public struct TaskDependencies: Sendable, Hashable {
  /// The tasks that must have ended before this task may be performed.
  ///
  /// A task that is no longer in the store counts as ended.
  public var tasks: Set<TaskID>
  /// Whether this task is cancelled if a task that it waits for ends without success.
  public var rule: DependencyRule
  /// The task that waits for all tasks of the batch that this task belongs to; `nil` if this task
  /// belongs to no batch.
  ///
  /// If the store has no task with this ID, no task waits for the batch.
  public var follower: TaskID?
  /// The tasks that this task waits for and that were abandoned or cancelled, each with the state
  /// in which it ended.
  ///
  /// A store records at most ``mostFailures`` of these tasks, and removes a task from the
  /// dictionary when the task is restarted. If more tasks have failed, the store chooses which of
  /// them to record, and whether other failed tasks replace the restarted ones.
  public var failed: [TaskID: TaskState]
  /// The task whose end cancelled this task; `nil` if there is no such task.
  public var cause: TaskID?
  /// The progress of the batch whose ``follower`` this task is; `nil` if there is no such batch.
  public var batch: BatchProgress?

  /// Makes dependencies; by default, the task waits for no other task.
  public init(
    on tasks: Set<TaskID> = [],
    rule: DependencyRule = .allSucceeded,
    follower: TaskID? = nil,
    failed: [TaskID: TaskState] = [:],
    cause: TaskID? = nil,
    batch: BatchProgress? = nil
  ) {
    self.tasks = tasks
    self.rule = rule
    self.follower = follower
    self.failed = failed
    self.cause = cause
    self.batch = batch
  }

  /// The maximum number of ``tasks`` of one task: 10,000.
  public static var mostTasks: Int { 10_000 }
  /// The maximum number of tasks in ``failed``: 1,000.
  public static var mostFailures: Int { 1_000 }

  /// Records in ``failed`` that a task was abandoned or cancelled, unless ``failed`` already has
  /// ``mostFailures`` other tasks.
  public mutating func note(_ id: TaskID, endedAs state: TaskState) {
    guard failed[id] != nil || failed.count < Self.mostFailures else { return }
    failed[id] = state
  }

  /// The dependencies as they were when the task was enqueued: without ``failed``, ``cause`` and
  /// ``batch``.
  package var asChosen: TaskDependencies {
    TaskDependencies(on: tasks, rule: rule, follower: follower)
  }

  /// Whether ``failed``, ``cause`` or ``batch`` is set.
  var hasHistory: Bool { !failed.isEmpty || cause != nil || batch != nil }

  /// Whether more tasks of the batch have failed than ``failed`` lists.
  var hasUnlistedFailures: Bool { batch.map { $0.failed > failed.count } ?? false }
}

extension TaskDependencies: BoxedValue {
  init() { self.init(on: []) }

  /// Whether all properties have their default values.
  public var isEmpty: Bool {
    tasks.isEmpty && rule == .allSucceeded && follower == nil && failed.isEmpty && cause == nil
      && batch == nil
  }
}

/// When a task that waits for others may be performed.
public enum DependencyRule: String, Sendable, Hashable, CaseIterable {
  /// The task may be performed when all tasks that it waits for have succeeded.
  ///
  /// If one of those tasks is abandoned or cancelled, the waiting task is cancelled, too.
  case allSucceeded
  /// The task may be performed when all tasks that it waits for have ended, with or without
  /// success.
  case allEnded
}

/// How many tasks of a batch have ended.
public struct BatchProgress: Sendable, Hashable {
  /// The number of tasks in the batch, without their follower.
  public var total: Int
  /// How many tasks of the batch have succeeded.
  public var succeeded: Int
  /// How many tasks of the batch were abandoned or cancelled.
  public var failed: Int

  /// Makes the progress of a batch; by default, the batch is empty.
  public init(total: Int = 0, succeeded: Int = 0, failed: Int = 0) {
    self.total = total
    self.succeeded = succeeded
    self.failed = failed
  }

  /// The number of tasks of the batch that have not ended.
  public var unfinished: Int { total - succeeded - failed }
  /// The fraction of the batch's tasks that have ended, from 0 to 1; 1 for an empty batch.
  public var fractionEnded: Double {
    total > 0 ? Double(succeeded + failed) / Double(total) : 1
  }

  /// Whether the counts are possible: none is negative, and at most ``total`` tasks have ended.
  var isPossible: Bool {
    succeeded >= 0 && failed >= 0 && total >= 0 && succeeded <= total
      && failed <= total - succeeded
  }

  /// Adds a difference to the number of tasks that ended in a state, unless the counts would then
  /// be impossible (``isPossible``).
  mutating func changeCount(of state: TaskState, by difference: Int) {
    var counted = self
    switch state {
    case .succeeded: counted.succeeded += difference
    case .abandoned, .cancelled: counted.failed += difference
    case .waiting, .running, .suspended, .parked, .paused: break
    }
    // The counts may come from a file that another program wrote, and be wrong.
    if counted.isPossible { self = counted }
  }

  /// Subtracts a task from ``total`` that was removed before it has ended.
  mutating func removeUnfinished() {
    if unfinished > 0 { total -= 1 }
  }
}

extension BatchProgress: CustomStringConvertible {
  /// The progress as text, as in `7 of 10 have ended, 1 of them without success`.
  public var description: String {
    "\(succeeded + failed) of \(total) have ended"
      + (failed > 0 ? ", \(failed) of them without success" : "")
  }
}
