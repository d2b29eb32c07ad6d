import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskQueue {
  /// Waits until the queue is idle.
  ///
  /// A queue is idle when no attempt is under way, the ends of the last attempts are stored, and no
  /// task is available that the queue may perform.
  ///
  /// ```swift
  /// async let run: Void = queue.run()
  /// try await queue.enqueue(contentsOf: uploads)
  /// try await queue.waitUntilIdle()
  /// ```
  /// Tasks that were added before the call are performed first. The call does not wait for:
  /// - tasks with a later date, such as a retry;
  /// - paused tasks, and tasks whose name is paused;
  /// - tasks without a handler.
  ///
  /// A paused queue is idle when its attempts have ended. A queue that does not run does nothing:
  /// the call waits until the queue has run and found nothing more to do. The same holds for a
  /// pass (``runAvailable()``) that began before the call, because it performs nothing that was
  /// added since. By the time the call returns, a task may have been added again, or another may
  /// have become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the queue goes on. A
  ///   ``TaskQueueError`` if the queue was shut down (``TaskQueueError/Code/shutDown``), the run
  ///   has ended because its store failed (``TaskQueueError/Code/storeFailed``), or one of the
  ///   queue's handlers calls it (``TaskQueueError/Code/waitsForItself``). What keeps the store
  ///   from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await open()
    try checkCanWaitUntilIdle()
    let date = now
    // A claim in flight may have looked at the store before the call.
    let claim = machine.withLock { $0.claims.count }
    try await RealWork.waiting({ _ in self.whyNotIdle }) {
      while try await !isIdle(afterClaim: claim, at: date) {}
    }
  }

  /// Refuses a call of a handler, which would wait for itself.
  nonisolated func checkCanWaitUntilIdle() throws(TaskQueueError) {
    guard let task = callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) waits until its queue '\(name)' is idle, which it is when "
        + "the handler has ended"
    )
  }

  /// Waits for a step that may have made the queue idle, or until nothing is under way.
  ///
  /// - Returns: Whether the queue is idle. If not, the caller calls again.
  private nonisolated func isIdle(afterClaim claim: Int, at date: Date) async throws -> Bool {
    try await signals.idleWatch.wait {
      switch machine.withLock({ $0.idleness(afterClaim: claim, at: date) }) {
      case .busy: nil
      case .unknown, .idle, .ended, .failed: .success(())
      }
    }
    let (idleness, claimCount) = machine.withLock { machine in
      (machine.idleness(afterClaim: claim, at: date), machine.claims.count)
    }
    switch idleness {
    case .busy: return false
    case .idle: return true
    case .ended(let error), .failed(let error): throw error
    case .unknown: break
    }
    // A worker claims now; if the queue does not run, a worker of the next run does.
    signals.workers.signal()
    try await signals.idleWatch.wait {
      machine.withLock { machine in
        guard machine.claims.count == claimCount,
          case .unknown = machine.idleness(afterClaim: claim, at: date)
        else { return .success(()) }
        return nil
      }
    }
    return false
  }

  private nonisolated var whyNotIdle: String {
    let performing = machine.withLock { $0.performing }
    return performing > 0
      ? "that the queue '\(name)' is idle, which performs tasks whose handlers have not ended"
      : "that the queue '\(name)' is idle, which does not run"
  }
}
