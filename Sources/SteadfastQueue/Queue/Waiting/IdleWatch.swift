import Synchronization

/// Notifies the callers that wait for an idle queue of each step that may make it idle.
///
/// While no caller waits, a step costs one read of an atomic number.
final class IdleWatch: Sendable {
  private let waiters = Waiters<Void>()
  private let waiterCount = Atomic(0)

  /// Wakes the waiters because something has ended: a claim, the storing of ends, or a run.
  func step() {
    guard waiterCount.load(ordering: .sequentiallyConsistent) > 0 else { return }
    waiters.resumeAll(with: .success(()))
  }

  /// Returns after the next step, or at once if `check` has a result.
  ///
  /// - Throws: the error of `check`; `CancellationError` when cancelled.
  func wait(unless check: () -> Result<Void, any Error>?) async throws {
    // Counts before the check looks, so that a change after the check reaches this waiter.
    waiterCount.add(1, ordering: .sequentiallyConsistent)
    defer { waiterCount.subtract(1, ordering: .sequentiallyConsistent) }
    try await waiters.wait(unless: check)
  }
}
