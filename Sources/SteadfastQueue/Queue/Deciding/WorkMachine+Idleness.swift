#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Whether a queue has anything to do.
extension WorkMachine {
  /// In a pass, the date that decides what is available.
  var cutoff: Date? {
    guard case .pass(let cutoff) = mode else { return nil }
    return cutoff
  }

  /// Whether the queue will perform no task any more.
  var hasEnded: Bool { isShutDown && mode == nil }

  /// Whether the queue is destroyed, with its tasks.
  enum Destruction: Sendable {
    case none
    /// What becomes of its tasks is not known yet.
    case underWay
    case done
  }

  /// The error for callers that wait for a task or for an idle queue, if neither will come.
  var reasonToFailWaiters: TaskQueueError? {
    guard hasEnded else { return nil }
    return switch destruction {
    case .none: .waitedForShutDownQueue
    case .underWay: nil
    case .done: .waitedForDestroyedQueue
    }
  }

  enum Idleness: Sendable {
    /// Something is performed, claimed or being stored.
    case busy
    /// Nothing is under way. Only a claim can tell whether a task is available.
    case unknown
    /// Nothing is under way, and nothing may begin.
    case idle
    /// The queue was shut down or destroyed, and performs nothing any more.
    case ended(TaskQueueError)
    /// The run has ended, because its store has failed.
    case failed(TaskQueueError)
  }

  /// Returns how idle the queue is.
  ///
  /// Only claims after this one count. A claim of a pass counts only if the pass's cutoff is not
  /// before this date.
  func idleness(afterClaim claim: Int, at date: Date) -> Idleness {
    if hasEnded { return reasonToFailWaiters.map { .ended($0) } ?? .busy }
    if mode == nil, let failure { return .failed(failure) }
    guard performing == 0, !claims.isInFlight, ready.isEmpty, returning.isEmpty, obeying.isEmpty,
      outbox.isEmpty
    else { return .busy }
    if isPaused, mode != nil { return .idle }
    guard let look = claims.emptyLook, look.claim > claim, look.cutoff.map({ $0 >= date }) ?? true
    else { return .unknown }
    return .idle
  }
}

extension TaskQueueError {
  fileprivate static let waitedForShutDownQueue = TaskQueueError(
    .shutDown,
    "the queue was shut down before the task ended; the task is kept by its store"
  )
  fileprivate static let waitedForDestroyedQueue = TaskQueueError(
    .destroyed,
    "the queue was destroyed, with its tasks"
  )
}
