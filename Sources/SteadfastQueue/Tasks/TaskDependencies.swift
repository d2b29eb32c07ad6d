/// What a task waits for besides its date, and which task waits for it.
///
/// ``TaskOptions/dependencies`` and a batch's follower choose it; see <doc:TasksThatWait>.
///
/// ## What a store does
///
/// Each of these is part of the change that causes it, and the outcome of that change is
/// ``ChangeOutcome/doneWithConsequences(_:)`` if a task in the store names the changed task, or the
/// changed task has a ``follower``.
///
/// - **An insertion.** If a task that it names is not in the store, or has ended without success
///   and the rule is ``DependencyRule/allSucceeded``, the outcome is
///   ``ChangeOutcome/unmetDependency(_:)`` with the least such ID, and no change of the batch is
///   stored. That does not concern a new task that has ended, or that is a duplicate. What the new
///   task has in ``failed``, ``cause`` and ``batch`` does not count: named tasks that have ended
///   without success are noted in ``failed``, in the order of their IDs. A task with a ``follower``
///   adds 1 to the ``BatchProgress/total`` of that one's ``batch``, also if the follower comes
///   later in the batch of changes, or an earlier task with the same ID has left; a task that has
///   ended counts as ended.
/// - **An end.** The follower's ``batch`` counts it. If the task has not succeeded, those that name
///   it, and the follower, note it in ``failed`` (``note(_:endedAs:)``). Those of them that have
///   the rule ``DependencyRule/allSucceeded``, are not running and have not ended are cancelled,
///   with the same date and the same `retains`. Their ends mean the same for others, and so on. Of
///   the tasks that have ended in this change, the least that one waits for is its ``cause``. They
///   end in the order of their IDs.
/// - **A restart of a task that has ended.** The follower's ``batch`` does not count it any more,
///   and those that note it in ``failed`` don't. The cancelled tasks whose ``cause`` it is are
///   restarted with the same date, then those whose cause one of these is, and so on. They go
///   behind their equals in the order of their IDs. One stays cancelled if it has a task left in
///   ``failed``, if its batch has more failures than it notes, or if another task has its unique
///   key. Then the least of those in ``failed`` that are in the store is its cause, and it has none
///   if there is none. Of two with the same unique key, the one whose cause was restarted before is
///   restarted, or else the one with the lesser ID.
/// - **A removal.** The cancelled tasks whose ``cause`` the task is are removed with it, and so on;
///   also when it is pruned. No pruning removes a task that has a cause for a reason of its own.
/// - **A supersession** is not possible for a task that has a ``follower``, or that a task in the
///   store names: its retry is a plain retry, and its successor waits.
///
/// A new task has an ID that no task in the store names, unless a task that comes before it in the
/// batch of changes names it as its follower. Tasks do not wait for each other in a circle. The
/// queue makes sure of both.
public struct TaskDependencies: Sendable, Hashable {
  /// The tasks that must have ended before this one may be performed.
  ///
  /// A task that is gone from the store counts as ended.
  public var tasks: Set<TaskID>
  /// What becomes of this task if one that it waits for ends without success.
  public var rule: DependencyRule
  /// The task that waits for this one, because both are of one batch; `nil` if there is none.
  ///
  /// A task with this ID need not be in the store: then nothing waits.
  public var follower: TaskID?
  /// Of the tasks that this one waits for, those that were abandoned or cancelled, each with the
  /// state in which it ended.
  ///
  /// A store notes at most ``mostFailures`` of them. One that is restarted is noted no more. If
  /// more have failed, the store chooses which ones are noted, and whether others are in place of
  /// those that are restarted.
  public var failed: [TaskID: TaskState]
  /// The task because of whose end this one was cancelled; `nil` if there is none.
  public var cause: TaskID?
  /// How far the batch is that this task follows; `nil` if it follows none.
  public var batch: BatchProgress?

  /// Makes dependencies; by default none.
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

  /// The greatest number of ``tasks`` of one task: 10,000.
  public static var mostTasks: Int { 10_000 }
  /// The greatest number of tasks in ``failed``: 1,000.
  public static var mostFailures: Int { 1_000 }

  /// Notes that a task that this one waits for was abandoned or cancelled, if there is room.
  public mutating func note(_ id: TaskID, endedAs state: TaskState) {
    guard failed[id] != nil || failed.count < Self.mostFailures else { return }
    failed[id] = state
  }

  /// What was chosen, without what has happened to the tasks since.
  package var asChosen: TaskDependencies {
    TaskDependencies(on: tasks, rule: rule, follower: follower)
  }

  /// Whether it says what has happened to tasks.
  var hasHistory: Bool { !failed.isEmpty || cause != nil || batch != nil }

  /// Whether more tasks of the batch have failed than are noted.
  var hasUnnotedFailures: Bool { batch.map { $0.failed > failed.count } ?? false }
}

extension TaskDependencies: RareValue {
  init() { self.init(on: []) }

  /// Whether nothing is chosen, and nothing has happened.
  public var isEmpty: Bool {
    tasks.isEmpty && rule == .allSucceeded && follower == nil && failed.isEmpty && cause == nil
      && batch == nil
  }
}

/// When a task may be performed that waits for others.
public enum DependencyRule: String, Sendable, Hashable, CaseIterable {
  /// When all have succeeded.
  ///
  /// If one of them is abandoned or cancelled, the task is cancelled with it.
  case allSucceeded
  /// When all have ended, however they have ended.
  case allEnded
}

/// How many tasks of a batch have ended.
public struct BatchProgress: Sendable, Hashable {
  /// The number of tasks in the batch, without the one that follows them.
  public var total: Int
  /// How many of them have succeeded.
  public var succeeded: Int
  /// How many of them were abandoned or cancelled.
  public var failed: Int

  /// Makes the progress of a batch, by default of one that is empty.
  public init(total: Int = 0, succeeded: Int = 0, failed: Int = 0) {
    self.total = total
    self.succeeded = succeeded
    self.failed = failed
  }

  /// How many have not ended.
  public var unfinished: Int { total - succeeded - failed }
  /// Which part of them has ended, from 0 to 1; 1 for an empty batch.
  public var fractionEnded: Double {
    total > 0 ? Double(succeeded + failed) / Double(total) : 1
  }

  /// Whether no count is negative, and no more tasks have ended than there are.
  var isPossible: Bool {
    succeeded >= 0 && failed >= 0 && total >= 0 && succeeded <= total
      && failed <= total - succeeded
  }

  /// Counts one task more, or one less, that has ended in a state, as far as that is possible.
  mutating func count(_ state: TaskState, _ difference: Int) {
    var counted = self
    switch state {
    case .succeeded: counted.succeeded += difference
    case .abandoned, .cancelled: counted.failed += difference
    case .waiting, .running, .suspended, .parked, .paused: break
    }
    // The counts of a file that another program wrote may be wrong.
    if counted.isPossible { self = counted }
  }

  /// Counts a task no more that leaves before it has ended.
  mutating func removeUnfinished() {
    if unfinished > 0 { total -= 1 }
  }
}

extension BatchProgress: CustomStringConvertible {
  /// As in `7 of 10 have ended, 1 of them without success`.
  public var description: String {
    "\(succeeded + failed) of \(total) have ended"
      + (failed > 0 ? ", \(failed) of them without success" : "")
  }
}
