/// What to do with a new task if a task that the queue knows has its unique key.
@nonexhaustive
public enum UniquePolicy: Sendable, Hashable {
  /// Keeps the task that is there, and returns it; ``EnqueuedTask/isNew`` is then false.
  ///
  /// The task that is there may have ended. An abandoned task is retained for a while
  /// (``TaskQueueConfiguration/abandonedRetention``). Until it is restarted or gone, nothing is
  /// performed for the new task. The task that is there may also be running, and may already have
  /// looked at what the new one is about. Use ``replace`` for work that must be done in these
  /// cases, too.
  case keep
  /// Adds the new task in place of the one that is there.
  ///
  /// A task that waits is removed, and its outcome is ``TaskOutcome/cancelled``. A task that has
  /// ended is forgotten. A task that is running loses the key and goes on with all its retries, so
  /// that it may be performed once more after the new one. The new task waits to be performed even
  /// if the one that it replaces was paused.
  case replace
  /// Throws an error with the code ``TaskQueueError/Code/duplicate``.
  case reject
}
