/// Whether a queue has anything to do.
extension WorkMachine {
  enum Idleness: Sendable, Equatable {
    /// Something is performed, claimed or being stored.
    case busy
    /// Nothing is under way; whether something is available, a claim must tell.
    case unknown
    /// Nothing is under way, and nothing may begin.
    case idle
  }

  /// How idle the queue is, for somebody who trusts no claim up to this number.
  func idleness(afterClaim seen: Int) -> Idleness {
    guard performing == 0, !isClaiming, ready.isEmpty, returning.isEmpty, outbox.all.isEmpty else {
      return .busy
    }
    if isPaused, mode != nil { return .idle }
    return emptyClaim.map { $0 > seen } ?? false ? .idle : .unknown
  }
}
