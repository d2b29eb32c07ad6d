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
