/// What became of a change.
public enum ChangeOutcome: Sendable, Hashable {
  /// It is kept.
  case done
  /// An insertion is kept, and this task with the same unique key was removed for it.
  case replaced(TaskID)
  /// An insertion was skipped: this task bears the unique key.
  case duplicate(of: TaskID)
  /// It was skipped: the lease is not the task's present one, or the task is gone.
  case stale
}
