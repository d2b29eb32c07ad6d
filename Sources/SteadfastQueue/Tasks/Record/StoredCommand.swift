/// A command for a task that is being performed, which its process carries out when the attempt
/// ends.
///
/// In a shared store, any process can cancel, pause, restart or remove a task that another process
/// performs. The command is stored with the task (``TaskRecord/command``), so that it is carried
/// out even if that process ends first.
///
/// More commands may be added.
@nonexhaustive
public enum StoredCommand: String, Sendable, Hashable, CaseIterable {
  /// The task is cancelled.
  case cancel
  /// The task is paused.
  case pause
  /// The task is cancelled and not retained.
  case remove
  /// The task waits again as if it were new.
  case restart
  /// The task waits again as if it were new, without its memory.
  case startOver
  /// The task waits again: the command to pause it was withdrawn, but the attempt may already be
  /// ending because of it.
  case release
}
