public import Synchronization

/// The state of one suspension, shared by its task and the handler that cancels it.
///
/// It is inlinable, and usable from inline code, so that other modules specialize it.
@usableFromInline package enum CancellableSuspension<Ticket: Sendable>: Sendable {
  @usableFromInline package typealias Continuation = CheckedContinuation<Void, any Error>

  /// The continuation is not in the list yet.
  case starting
  /// The continuation is in the list under this ticket, until it is removed.
  case listed(Ticket)
  /// The task was cancelled before its continuation was put in the list.
  case cancelled

  /// Suspends until the continuation in the list is resumed or the task is cancelled.
  ///
  /// The first side to remove the continuation from the list resumes it, so it is resumed exactly
  /// once.
  ///
  /// `enlist` adds the continuation to the list. It returns the ticket, which is `nil` if there is
  /// nothing to wait for, and the continuations to resume now, outside of every lock. `withdraw`
  /// removes the continuation if it is still in the list.
  @inlinable
  nonisolated(nonsending)
    package static func suspend(
      enlist: (Continuation) -> (ticket: Ticket?, resumed: [Continuation]),
      withdraw: @Sendable (Ticket) -> Continuation?
    ) async throws
  {
    let suspension = Mutex(Self.starting)
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let resumed: [Continuation]? = suspension.withLock { suspension in
          if case .cancelled = suspension { return nil }
          let (ticket, resumed) = enlist(continuation)
          if let ticket { suspension = .listed(ticket) }
          return resumed
        }
        guard let resumed else { return continuation.resume(throwing: CancellationError()) }
        for continuation in resumed { continuation.resume() }
      }
    } onCancel: {
      let withdrawn: Continuation? = suspension.withLock { suspension in
        guard case .listed(let ticket) = suspension else {
          suspension = .cancelled
          return nil
        }
        return withdraw(ticket)
      }
      withdrawn?.resume(throwing: CancellationError())
    }
  }
}
