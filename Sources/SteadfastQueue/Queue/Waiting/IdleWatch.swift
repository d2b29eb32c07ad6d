import Synchronization

/// Those who wait for the queue to be idle, told of each step that may make it so.
///
/// While there is none, a step costs one look at an atomic number.
final class IdleWatch: Sendable {
  private let waiters = Waiters<Void>()
  private let waiterCount = Atomic(0)

  /// Something has ended: a claim, the storing of ends, a run.
  func step() {
    guard waiterCount.load(ordering: .sequentiallyConsistent) > 0 else { return }
    waiters.resumeAll(with: .success(()))
  }

  /// Returns after the next step, or at once when the check has a result.
  ///
  /// - Throws: the check's error; `CancellationError` when cancelled.
  func wait(unless check: () -> Result<Void, any Error>?) async throws {
    // Counted before the check looks: what changes after it is told here.
    waiterCount.add(1, ordering: .sequentiallyConsistent)
    defer { waiterCount.subtract(1, ordering: .sequentiallyConsistent) }
    try await waiters.wait(unless: check)
  }
}
