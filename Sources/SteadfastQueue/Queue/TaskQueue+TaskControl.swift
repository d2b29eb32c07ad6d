import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Control of single tasks, and of all tasks that match a filter.
extension TaskQueue {
  /// Cancels a task.
  ///
  /// A task that waits is cancelled when the call returns. If the task is being performed, the call
  /// cancels the handler's Swift task and does not wait for the handler. If the handler then
  /// throws, the task is cancelled; if it returns all the same, the task has succeeded. The outcome
  /// of a cancelled task is ``TaskOutcome/cancelled``. A task that another process performs on a
  /// shared store is left alone.
  ///
  /// - Returns: whether the task is cancelled, or will be if its handler throws; `false` if it is
  ///   gone or has ended, another process performs it, or it is to be removed anyway.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await ask(.cancel, of: id)
  }

  /// Cancels the tasks that match a filter, as ``cancel(_:)`` does, and returns how many.
  ///
  /// The call changes a few hundred tasks at a time, while the queue goes on with its other work.
  /// Tasks that are enqueued after the call has begun are left alone, except for a few at most.
  ///
  /// In a ``TaskQueueGroup``, a filter with a ``TaskFilter/queue`` of `nil` reaches the tasks of
  /// all queues, also those that another queue of the group performs. The other calls with a filter
  /// do the same.
  ///
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   these tasks waits for a store that is gone. Some tasks may have been cancelled by then.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await ask(.cancel, of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Cancels all tasks that have not ended, and returns how many.
  ///
  /// Tasks that are enqueued after the call has begun stay, as for ``cancel(matching:)``.
  ///
  /// - Throws: as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Pauses a task until it is resumed or restarted.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// paused if the handler then throws. That counts as no retry. The event ``TaskEvent/paused(_:)``
  /// is posted when the task is paused.
  ///
  /// - Returns: whether the task existed, had not ended, was neither paused nor about to be
  ///   cancelled, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool { try await ask(.pause, of: id) }

  /// Resumes a paused task: it waits again, with the date and the retries that it had.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await open()
    var withdrawn: KeptRequest?
    do {
      return try await resume(id, withdrawing: &withdrawn)
    } catch {
      if let withdrawn {
        machine.withLock { $0.putBack(withdrawn) }
        // A run may have begun.
        signals.finisher.signal()
      }
      throw error
    }
  }

  /// Resumes a task, and sets the request to pause it that was withdrawn, though the store may have
  /// done it.
  private nonisolated func resume(
    _ id: TaskID,
    withdrawing request: inout KeptRequest?
  ) async throws -> Bool {
    while true {
      switch machine.withLock({ $0.withdrawPause(of: id) }) {
      case .done: return true
      case .inDoubt(let withdrawn): request = withdrawn
      case .afterAnother:
        try await waitUntilObeyed(id)
        continue
      case .notAsked: break
      }
      guard let record = try await record(of: id), record.state == .paused else {
        return request != nil
      }
      if try await store([.resume(id)], for: [record])[0].isDone { return true }
    }
  }

  /// Makes a task wait again as if it were new, available now, whatever state it is in.
  ///
  /// Use it to try a dead letter once more, or to start a paused task over. An expiry date that has
  /// passed is dropped; a later one stays. If the task is being performed, the call cancels the
  /// handler's Swift task, and the task starts over if the handler then throws.
  ///
  /// What the task remembers stays, so a dead letter goes on with the step that failed. A task that
  /// has succeeded remembers nothing.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - forgetting: whether the task forgets what it remembers, and begins from the beginning.
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/duplicate`` if the task has
  ///   ended or expired, and another task has its unique key by now; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func restart(
    _ id: TaskID,
    forgetting: Bool = false
  ) async throws -> Bool {
    try await ask(.restart(forgets: forgetting), of: id)
  }

  /// Restarts the tasks that match a filter, as ``restart(_:forgetting:)`` does, and returns how
  /// many.
  ///
  /// `restart(matching: .deadLetters)` tries all dead letters once more. A task whose unique key
  /// another task has by now is left alone: it still matches the filter afterwards, and
  /// ``restart(_:forgetting:)`` says which task has its key.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been restarted by
  ///   then.
  @discardableResult
  public nonisolated func restart(
    matching filter: TaskFilter,
    forgetting: Bool = false
  ) async throws -> Int {
    try await ask(.restart(forgets: forgetting), of: filter)
  }

  /// Sets the date from which a task may be performed; by default now, instead of after its delay.
  ///
  /// The task's retries and its last error stay as they are, and it goes behind the available tasks
  /// of its priority. A date that has passed counts as now.
  ///
  /// A paused or parked task stays so, with the new date. A task that is being performed is left
  /// alone. Without a date, a task that is available already is left alone, too. A task that has
  /// expired by the new date is abandoned on that date.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: a ``TaskQueueError`` for a date that is not finite; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func reschedule(_ id: TaskID, to date: Date? = nil) async throws -> Bool {
    try TaskQueueError.check(storable: date, "the date to reschedule a task to")
    return try await ask(.reschedule(to: date?.storable), of: id)
  }

  /// Reschedules the tasks that match a filter, and returns how many got another date.
  ///
  /// It does for each of them what ``reschedule(_:to:)`` does. When the network is back,
  /// `reschedule(matching: .retrying)` makes the tasks available at once that wait for a retry, or
  /// for the end of a snooze. Their number of retries stays. Tasks whose date was chosen are left
  /// alone: a filter without ``TaskFilter/isPostponed`` would make them available now, too.
  ///
  /// - Throws: as ``reschedule(_:to:)``; some tasks may have been rescheduled by then.
  @discardableResult
  public nonisolated func reschedule(
    matching filter: TaskFilter,
    to date: Date? = nil
  ) async throws -> Int {
    try TaskQueueError.check(storable: date, "the date to reschedule tasks to")
    let filter = filter.narrowed(to: TaskState.unfinished)
    return try await ask(.reschedule(to: date?.storable), of: filter)
  }

  /// Removes a task without a trace, even a retained one.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// removed if the handler then throws.
  ///
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await ask(.remove, of: id)
  }

  /// Removes the tasks that match a filter, as ``remove(_:)`` does, and returns how many.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been removed by then.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await ask(.remove, of: filter)
  }
}
