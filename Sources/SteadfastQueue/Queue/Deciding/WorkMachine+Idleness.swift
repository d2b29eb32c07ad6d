#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Whether a queue has anything to do.
extension WorkMachine {
  /// A look at the store that found nothing to perform.
  struct Look: Sendable {
    /// The number of the claim.
    let claim: Int
    /// In a pass, the date up to which it looked.
    let horizon: Date?
  }

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
  /// Only claims after this one count. A claim of a pass counts only if the pass's horizon is not
  /// before this date.
  func idleness(afterClaim claim: Int, at date: Date) -> Idleness {
    if hasEnded { return .ended }
    if mode == nil, let failure { return .failed(failure) }
    guard performing == 0, !isClaiming, ready.isEmpty, returning.isEmpty, obeying == 0,
      outbox.isEmpty
    else { return .busy }
    if isPaused, mode != nil { return .idle }
    guard let look = emptyLook, look.claim > claim, look.horizon.map({ $0 >= date }) ?? true
    else { return .unknown }
    return .idle
  }
}
