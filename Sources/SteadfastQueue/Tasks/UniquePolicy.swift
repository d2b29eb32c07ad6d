/// What to do with a new task whose unique key is borne by a task that the queue knows.
public enum UniquePolicy: Sendable, Hashable {
  /// Keep the task that is there, and return it; ``EnqueuedTask/isNew`` is then false.
  ///
  /// It may have ended: one that was abandoned is kept for a while
  /// (``TaskQueueConfiguration/abandonedRetention``), and nothing is performed for the new one until it
  /// is restarted or gone. It may be running, and have looked at what the new one is about already. Work
  /// that must be done in these cases too takes ``replace``.
  case keep
  /// Take the new task in place of the one that is there.
  ///
  /// A twin that waits is removed, and its outcome is ``TaskOutcome/cancelled``; one that has
  /// ended is forgotten; one that is running loses the key and goes on with all its retries, so that
  /// it may be performed once more after the new one. The new task waits to be performed though the one
  /// in whose place it comes was paused.
  case replace
  /// Throw an error with the code ``TaskQueueError/Code/duplicate``.
  case reject
}
