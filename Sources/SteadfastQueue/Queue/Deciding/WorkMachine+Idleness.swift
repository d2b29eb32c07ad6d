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

  enum Idleness: Sendable {
    /// Something is performed, claimed or being stored.
    case busy
    /// Nothing is under way. Only a claim can tell whether a task is available.
    case unknown
    /// Nothing is under way, and nothing may begin.
    case idle
    /// The queue was shut down, and performs nothing any more.
    case ended
    /// The run has ended, because its store has failed.
    case failed(TaskQueueError)
  }

  /// Returns how idle the queue is.
  ///
  /// Only claims after this one count. A claim of a pass counts only if the pass's cutoff is not
  /// before this date.
  func idleness(afterClaim claim: Int, at date: Date) -> Idleness {
    if hasEnded { return .ended }
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
