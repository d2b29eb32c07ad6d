import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskQueue {
  /// Waits until there is nothing to do: no attempt is under way, how the last ones ended is stored,
  /// and no task is available that the queue may perform.
  ///
  /// ```swift
  /// async let run: Void = queue.run()
  /// try await queue.enqueue(contentsOf: uploads)
  /// try await queue.waitUntilIdle()
  /// ```
  /// What was added before the call is performed first. Tasks that wait for a later date, a retry for
  /// example, are not waited for; nor are those that are paused, whose name is, or that have no
  /// handler. A queue that is paused is idle when its attempts have ended. One that does not run does
  /// nothing, and is waited for until it has run and found nothing more to do; so is one whose
  /// ``runAvailable()`` began before the call, and performs nothing that was added since. By the time
  /// the call returns, a task may have been added again, or another become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled: the queue goes on. A
  ///   ``TaskQueueError`` with the code ``TaskQueueError/Code/shutDown`` if the queue was shut down,
  ///   with the code ``TaskQueueError/Code/storeFailed`` if the run has ended because its store
  ///   failed, with the code ``TaskQueueError/Code/waitsForItself`` if one of its handlers calls it.
  ///   What keeps the store from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await open()
    if let task = callingTask {
      throw TaskQueueError(
        .waitsForItself,
        "the handler of the task \(task) waits until its queue '\(name)' is idle, which it is when "
          + "the handler has ended"
      )
    }
    let date = now
    // What a claim in flight has looked at may be older than the call.
    let claim = machine.withLock { $0.claimCount }
    try await RealWork.waiting({ _ in self.whyNotIdle }) {
      while try await !isIdle(afterClaim: claim, at: date) {}
    }
  }

  /// Waits for a step that may have made the queue idle, or for all that is under way to end.
  ///
  /// Whether it is idle.
  private nonisolated func isIdle(afterClaim claim: Int, at date: Date) async throws -> Bool {
    try await idleWatch.wait {
      switch machine.withLock({ $0.idleness(afterClaim: claim, at: date) }) {
      case .busy: nil
      case .unknown, .idle, .ended, .failed: .success(())
      }
    }
    let (idleness, claimCount) = machine.withLock { machine in
      (machine.idleness(afterClaim: claim, at: date), machine.claimCount)
    }
    switch idleness {
    case .busy: return false
    case .idle: return true
    case .ended: throw Self.shutDownError
    case .failed(let error): throw error
    case .unknown: break
    }
    // A worker looks now; where nothing runs, one of the next run.
    wake.fire()
    try await idleWatch.wait {
      machine.withLock { machine in
        guard machine.claimCount == claimCount,
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
