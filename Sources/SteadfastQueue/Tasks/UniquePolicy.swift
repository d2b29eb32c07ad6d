/// What to do with a new task whose unique key is borne by a task that the queue knows.
public enum UniquePolicy: Sendable, Hashable {
  /// Keep the task that is there, and return it.
  case keep
  /// Take the new task in place of the one that is there.
  ///
  /// A twin that waits is removed, and its outcome is ``TaskOutcome/cancelled``; one that has
  /// ended is forgotten; one that is running loses the key and goes on.
  case replace
  /// Throw an error with the code ``TaskQueueError/Code/duplicate``.
  case reject
}
