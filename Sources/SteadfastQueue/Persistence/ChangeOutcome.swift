/// The result of a change.
///
/// More kinds may be added.
@nonexhaustive
public enum ChangeOutcome: Sendable, Hashable {
  /// The change is stored.
  case done
  /// An insertion is stored: this task, which has the same unique key, has taken it over.
  case replaced(TaskID)
  /// The task was removed, and this one, its successor, has taken its place.
  case superseded(by: TaskID)
  /// The change is stored, and it concerns tasks that wait for this one.
  ///
  /// Stores answer so in place of ``done`` to an end, to the restart of a task that has ended, and
  /// to a removal, if another task in the store names the task, or the task has a
  /// ``TaskDependencies/follower``, even if nothing changes for others now.
  indirect case doneWithConsequences(Consequences)
  /// An insertion was skipped, because the new task would wait for this one without end.
  ///
  /// No task has the ID, or the task has ended without success, or is about to.
  case unmetDependency(TaskID)
  /// An insertion was skipped: this task has the unique key.
  case duplicate(of: TaskID)
  /// An insertion was skipped: another task has the same ID.
  case identityTaken
  /// The change was skipped, because it does not apply to the task any more.
  ///
  /// The lease is not the task's present one, the task is gone, or it is not in a state to which
  /// the change applies. If the change was sent before, and the answer was a transient error
  /// (``PersistenceError``), the reason may be that it was stored then.
  case stale
  /// The change was skipped, because the batch was refused.
  ///
  /// Another insertion of the batch could not be stored, and then no change of the batch is stored.
  /// Changes that come after that insertion may all have this outcome.
  case batchRefused
  /// No change of the batch was stored: a value is not the one that the batch names.
  ///
  /// Every change of the batch has this outcome. Read the value and decide again.
  case valueDiffers
}

/// What the end, the restart or the removal of a task has changed for others.
public struct Consequences: Sendable, Hashable {
  /// The tasks that were cancelled, restarted or removed along with it, in the order of their IDs.
  public var tasks: [TaskID]
  /// The progress of the batch of which the task is, after all of this.
  ///
  /// It is `nil` if the follower is not in the store any more, and after a removal, which is no
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

  /// The answer to most batches of one change, which is made once.
  private static let usualAnswer: [ChangeOutcome] = [.done]

  /// The answer to a batch of one change with this outcome.
  var answer: [ChangeOutcome] {
    if case .done = self { Self.usualAnswer } else { [self] }
  }

  /// What the change means for other tasks; `nil` if it means nothing.
  var consequences: Consequences? {
    if case .doneWithConsequences(let consequences) = self { consequences } else { nil }
  }
}
