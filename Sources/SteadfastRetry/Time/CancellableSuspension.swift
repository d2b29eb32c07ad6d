public import Synchronization

/// A suspension of a task whose continuation is in a list, from which another thread may resume it.
///
/// The type is inlinable, so that the compiler specializes it in other modules.
@usableFromInline package enum CancellableSuspension<Ticket: Sendable>: Sendable {
  @usableFromInline package typealias Continuation = CheckedContinuation<Void, any Error>

  /// The continuation is not in the list yet.
  case starting
  /// The continuation is in the list, and the ticket identifies it there.
  case listed(Ticket)
  /// The task was cancelled before its continuation was put in the list.
  case cancelled

  /// Suspends until the continuation is resumed or the task is cancelled.
  ///
  /// The continuation is resumed exactly once: by the code that removes it from the list, which is
  /// either the owner of the list or the cancellation.
  ///
  /// `enlist` adds the continuation to the list. It returns a ticket, which is `nil` if there is
  /// nothing to wait for, and the continuations that must be resumed now, while no lock is held.
  /// `withdraw` removes the continuation if it is still in the list, and returns it.
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
