import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Control of single tasks, and of all that a filter lets through.
extension TaskQueue {
  /// Takes a task out.
  ///
  /// One that waits is taken out when this returns. One that is being performed has its Swift task
  /// cancelled, which this does not wait for: if the handler then throws, the task is taken out; if
  /// it returns all the same, the task has succeeded. Its outcome is ``TaskOutcome/cancelled``. A
  /// task that another process performs on a shared store is left alone.
  ///
  /// - Returns: whether the task was there and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await ask(.cancel, of: id)
  }

  /// Takes out the tasks that a filter lets through, as ``cancel(_:)`` does, and returns how many.
  ///
  /// It is done a few hundred tasks at a time, beside everything else. Tasks that are enqueued after the
  /// call has begun are left alone, but for a few at most.
  ///
  /// - Throws: what the store throws; then some may have been taken out.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await ask(.cancel, of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Takes out all tasks that have not ended, and returns how many; tasks that are enqueued after the
  /// call has begun stay, as for ``cancel(matching:)``.
  ///
  /// - Throws: as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Sets a task aside until it is resumed or restarted.
  ///
  /// One that is being performed has its Swift task cancelled, and is set aside if the handler then
  /// throws; that counts as no retry. ``TaskEvent/paused(_:)`` tells that it has.
  ///
  /// - Returns: whether the task was there, had not ended, and was neither paused nor to be cancelled.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool { try await ask(.pause, of: id) }

  /// Lets a paused task wait again, with the date and the retries that it had.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await open()
    while true {
      if machine.withLock({ $0.withdrawPause(of: id) }) { return true }
      guard let record = try await record(of: id), record.state == .paused else { return false }
      if try await store([.resume(id)], for: [record])[0] { return true }
    }
  }

  /// Lets a task wait again as if it were new, available now, whatever state it is in.
  ///
  /// This is how a dead letter is tried once more, and how a paused task begins anew. A date of
  /// expiry that has passed is dropped, one that is ahead stays. One that is being performed has its
  /// Swift task cancelled, and begins anew if the handler then throws.
  ///
  /// - Returns: whether the task was there.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func restart(_ id: TaskID) async throws -> Bool {
    defer { notice.withLock { $0.restarted() } }
    return try await ask(.restart, of: id)
  }

  /// Restarts the tasks that a filter lets through, as ``restart(_:)`` does, and returns how many.
  ///
  /// `restart(matching: .deadLetters)` tries all that were given up once more.
  ///
  /// - Throws: what the store throws; then some may have been restarted.
  @discardableResult
  public nonisolated func restart(matching filter: TaskFilter) async throws -> Int {
    defer { notice.withLock { $0.restarted() } }
    return try await ask(.restart, of: filter)
  }

  /// Sets the date from which a task may be performed; without one, it is tried now, instead of after
  /// its delay.
  ///
  /// Its retries and its last error stay as they are, and it goes behind the available tasks of its
  /// priority. A date that has passed is taken for now.
  ///
  /// A task that is paused or put aside stays so, with the new date. One that is being performed is
  /// left alone; so is one that is to be tried now and is available. One that has expired by the date
  /// is abandoned then.
  ///
  /// - Returns: whether the task was there, had not ended, and was not being performed.
  /// - Throws: a ``TaskQueueError`` for a date that is none; what the store throws.
  @discardableResult
  public nonisolated func reschedule(_ id: TaskID, to date: Date? = nil) async throws -> Bool {
    try TaskQueueError.check(date, "the date to reschedule a task to")
    return try await ask(.reschedule(to: date?.storable), of: id)
  }

  /// Reschedules the tasks that a filter lets through, as ``reschedule(_:to:)`` does, and returns how
  /// many got another date.
  ///
  /// When the network is back, `reschedule(matching: .retrying)` tries those that wait for a retry, or
  /// for the end of a snooze, at once. Their number of retries stays. Those whose date was chosen are
  /// left alone: a filter without ``TaskFilter/isPutOff`` would have them performed now, too.
  ///
  /// - Throws: as ``reschedule(_:to:)``; then some may have been rescheduled.
  @discardableResult
  public nonisolated func reschedule(
    matching filter: TaskFilter,
    to date: Date? = nil
  ) async throws -> Int {
    try TaskQueueError.check(date, "the date to reschedule tasks to")
    let filter = filter.narrowed(to: TaskState.unfinished)
    return try await ask(.reschedule(to: date?.storable), of: filter)
  }

  /// Removes a task, one that has ended and is kept too, without a trace.
  ///
  /// One that is being performed has its Swift task cancelled, and is removed if the handler then
  /// throws.
  ///
  /// - Returns: whether the task was there.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await ask(.remove, of: id)
  }

  /// Removes the tasks that a filter lets through, as ``remove(_:)`` does, and returns how many.
  ///
  /// - Throws: what the store throws; then some may have been removed.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await ask(.remove, of: filter)
  }
}
