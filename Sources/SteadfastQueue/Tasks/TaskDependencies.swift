/// The tasks that a task waits for, and the task that waits for it.
///
/// ``TaskOptions/dependencies`` and a batch's follower set them; see <doc:TasksThatWait>.
///
/// ## What a store does
///
/// A store makes each of these changes together with the change that causes it. The outcome of that
/// change is ``ChangeOutcome/doneWithConsequences(_:)`` if a task in the store names the changed
/// task in ``tasks``, or if the changed task has a ``follower``.
///
/// - **An insertion.** The outcome is ``ChangeOutcome/unmetDependency(_:)`` if a named task is not
///   in the store, or if it has ended without success and the rule is
///   ``DependencyRule/allSucceeded``. The outcome has the lowest such ID, and no change of the
///   batch is stored. A new task that has already ended, or that is a duplicate, is not checked.
///   The store ignores the new task's own ``failed``, ``cause`` and ``batch``. It adds the named
///   tasks that have ended without success to ``failed``, in the order of their IDs. A task with a
///   ``follower`` adds 1 to the ``BatchProgress/total`` of the follower's ``batch``, even if the
///   follower comes later in the batch of changes, or if an earlier task with the same ID has left
///   the store. A task that has ended counts as ended.
/// - **An end.** The follower's ``batch`` counts the ended task. If the task did not succeed, the
///   tasks that name it, and its follower, record it in ``failed`` (``note(_:endedAs:)``). Of these
///   tasks, each one with the rule ``DependencyRule/allSucceeded`` that neither is running nor has
///   ended is cancelled, with the same date and the same `retains`. Each cancellation cascades in
///   the same way. The ``cause`` of a cancelled task is the lowest ID among the tasks that it waits
///   for and that have ended in this change. The tasks end in the order of their IDs.
/// - **A restart of a task that has ended.** The follower's ``batch`` stops counting the task as
///   ended, and other tasks remove it from ``failed``. The cancelled tasks whose ``cause`` is the
///   task are restarted with the same date, then the tasks whose cause is one of these, and so on.
///   They go behind their equals in the order of their IDs. A task stays cancelled if its
///   ``failed`` still has a task, if its batch has more failures than ``failed`` lists, or if
///   another task has its unique key. Its cause is then the lowest ID in ``failed`` whose task is
///   in the store, or `nil` if there is none. Of two tasks with the same unique key, the one whose
///   cause was restarted first is restarted, or else the one with the lower ID.
/// - **A removal.** The cancelled tasks whose ``cause`` is the task are removed with it, and so on.
///   Pruning the task has the same effect. Otherwise, pruning never removes a task that has a
///   ``cause``.
/// - **A supersession.** A task that has a ``follower``, or that a task in the store names, can't
///   be superseded: its retry is a plain retry, and its successor waits.
///
/// The queue guarantees that no task in the store names the ID of a new task, unless an earlier
/// task in the batch of changes names the new task as its follower. The queue also guarantees that
/// tasks do not wait for each other in a circle.
public struct TaskDependencies: Sendable, Hashable {
  /// The tasks that must have ended before this task may be performed.
  ///
  /// A task that is no longer in the store counts as ended.
  public var tasks: Set<TaskID>
  /// Whether this task is cancelled if a task that it waits for ends without success.
  public var rule: DependencyRule
  /// The follower of the batch that this task belongs to, which waits for this task; `nil` if the
  /// task belongs to no batch.
  ///
  /// If the store has no task with this ID, no task waits for the batch.
  public var follower: TaskID?
  /// The tasks that this task waits for and that were abandoned or cancelled, each with the state
  /// in which it ended.
  ///
  /// A store records at most ``mostFailures`` of these tasks, and removes a task that is restarted.
  /// If more tasks have failed, the store chooses which of them to record, and whether other failed
  /// tasks replace the restarted ones.
  public var failed: [TaskID: TaskState]
  /// The task whose end cancelled this task; `nil` if there is no such task.
  public var cause: TaskID?
  /// The progress of the batch that this task follows; `nil` if the task follows no batch.
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

  /// Records that a dependency was abandoned or cancelled, if ``failed`` has fewer than
  /// ``mostFailures`` tasks.
  public mutating func note(_ id: TaskID, endedAs state: TaskState) {
    guard failed[id] != nil || failed.count < Self.mostFailures else { return }
    failed[id] = state
  }

  /// The dependencies as they were chosen, without what has happened to the tasks since.
  package var asChosen: TaskDependencies {
    TaskDependencies(on: tasks, rule: rule, follower: follower)
  }

  /// Whether there is a history: failed tasks, a cause, or the progress of a batch.
  var hasHistory: Bool { !failed.isEmpty || cause != nil || batch != nil }

  /// Whether more tasks of the batch have failed than ``failed`` lists.
  var hasUnnotedFailures: Bool { batch.map { $0.failed > failed.count } ?? false }
}

extension TaskDependencies: BoxedValue {
  init() { self.init(on: []) }

  /// Whether no dependency is chosen, and there is no history.
  public var isEmpty: Bool {
    tasks.isEmpty && rule == .allSucceeded && follower == nil && failed.isEmpty && cause == nil
      && batch == nil
  }
}

/// When a task that waits for others may be performed.
public enum DependencyRule: String, Sendable, Hashable, CaseIterable {
  /// The task may be performed when all tasks that it waits for have succeeded.
  ///
  /// If one of those is abandoned or cancelled, the waiting task is cancelled, too.
  case allSucceeded
  /// The task may be performed when all tasks that it waits for have ended, however they ended.
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

  /// Makes the progress of a batch, by default of an empty one.
  public init(total: Int = 0, succeeded: Int = 0, failed: Int = 0) {
    self.total = total
    self.succeeded = succeeded
    self.failed = failed
  }

  /// The number of tasks of the batch that have not ended.
  public var unfinished: Int { total - succeeded - failed }
  /// The fraction of the tasks that have ended, from 0 to 1; 1 for an empty batch.
  public var fractionEnded: Double {
    total > 0 ? Double(succeeded + failed) / Double(total) : 1
  }

  /// Whether no count is negative, and no more tasks have ended than the batch has.
  var isPossible: Bool {
    succeeded >= 0 && failed >= 0 && total >= 0 && succeeded <= total
      && failed <= total - succeeded
  }

  /// Adds a difference to the count of tasks that ended in a state, unless that makes the counts
  /// impossible.
  mutating func changeCount(of state: TaskState, by difference: Int) {
    var counted = self
    switch state {
    case .succeeded: counted.succeeded += difference
    case .abandoned, .cancelled: counted.failed += difference
    case .waiting, .running, .suspended, .parked, .paused: break
    }
    // The counts of a file that another program wrote may be wrong.
    if counted.isPossible { self = counted }
  }

  /// Subtracts a task that leaves the batch before it has ended.
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
