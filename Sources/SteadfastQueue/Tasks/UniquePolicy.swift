/// What to do with a new task if another task of its name has its unique key.
///
/// Of the tasks with one name and one key, at most one is the *holder*: it waits, or is performed.
/// At most one more is its *successor*, which waits until the holder has ended. A task that has
/// ended is neither, and keeps no new task from being added. Nor does a task that waits, and whose
/// expiry date has come. So whatever is enqueued last is performed last.
///
/// With ``keep``, ``replace`` and ``join``, the call returns a task in any case.
/// ``EnqueuedTask/isNew`` says whether it was added.
@nonexhaustive
public enum UniquePolicy: Sendable, Hashable {
  /// Keeps the task that waits, and returns it.
  ///
  /// If the holder is being performed, it may already have looked at what the new task is about. So
  /// the new task is added as its successor. If the holder has a successor already, the call
  /// returns that one.
  case keep
  /// Gives the task that waits the payload, the options and the date of the new one.
  ///
  /// It is the same task as before, with its ID, its order and its retries, and its outcome is
  /// that of both. A task that is paused stays so; one that is parked waits again. If the holder
  /// is being performed, the new task is added as its successor, or its successor gets what the
  /// new one has.
  ///
  /// The task keeps its place in line if the new one is available at once. A later date postpones
  /// it (a *debounce*), but not beyond ``TaskOptions/maxDelay``. A task that waits for a retry is
  /// not performed before the retry's date.
  case replace
  /// Throws an error with the code ``TaskQueueError/Code/duplicate``.
  case reject
  /// Returns the holder, whether it waits or is being performed.
  ///
  /// Several callers share one attempt in this way.
  case join
}

/// What a task is for its unique key.
public enum UniqueKeyRole: String, Sendable, Hashable, CaseIterable {
  /// The task that is performed next, or is being performed.
  case holder
  /// The task that waits until the holder has ended.
  case successor
}

extension TaskRecord {
  /// Returns whether another task has the same queue, name and unique key.
  ///
  /// Texts are the same only if their UTF-8 bytes are; Swift's `==` takes others for the same. A
  /// task without a key is no twin of any.
  public func isTwin(of other: TaskRecord) -> Bool {
    guard let uniqueKey, let otherKey = other.uniqueKey else { return false }
    return uniqueKey.isExactly(otherKey) && name.isExactly(other.name)
      && queue.isExactly(other.queue)
  }
}
