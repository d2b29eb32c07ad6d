import Synchronization

/// Where one suspension stands, between its own task and whoever cancels that task.
package enum CancellableSuspension<Ticket: Sendable>: Sendable {
  package typealias Continuation = CheckedContinuation<Void, any Error>

  /// The continuation is not listed yet.
  case starting
  /// The continuation is listed under this ticket, until it is taken out.
  case listed(Ticket)
  /// The task was cancelled before its continuation was listed.
  case cancelled

  /// Suspends until the listed continuation is resumed or the task is cancelled, whichever takes
  /// it out of the list first: exactly one of them resumes it.
  ///
  /// `enlist` returns the ticket, nil if there is nothing to wait for, and the continuations to
  /// resume now, outside of every lock.
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
