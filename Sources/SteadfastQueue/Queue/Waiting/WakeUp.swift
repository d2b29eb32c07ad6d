import Synchronization

/// A level-triggered wake-up for several waiters.
///
/// A fire raises the level and resumes one waiter. While the level is up, each further fire costs
/// one atomic read. A waiter lowers the level first and only then looks for work, so that no fire
/// is lost between looking and waiting.
final class WakeUp: Sendable {
  private let waiters = Waiters<Void>()
  private let isUp = Atomic(false)

  func fire() {
    // Usually the level is up already. A read costs less than a write of what other threads read.
    guard !isUp.load(ordering: .sequentiallyConsistent),
      !isUp.exchange(true, ordering: .sequentiallyConsistent)
    else { return }
    waiters.resumeLast(returning: ())
  }

  func fireAll() {
    isUp.store(true, ordering: .sequentiallyConsistent)
    waiters.resumeAll(with: .success(()))
  }

  /// Lowers the level, and so forgets fires that no waiter has waited for.
  func takeDown() { isUp.store(false, ordering: .sequentiallyConsistent) }

  /// Returns once fired since the level was last lowered, or when cancelled.
  func wait() async {
    if isUp.exchange(false, ordering: .sequentiallyConsistent) { return }
    do {
      try await waiters.wait {
        isUp.load(ordering: .sequentiallyConsistent) ? .success(()) : nil
      }
      isUp.store(false, ordering: .sequentiallyConsistent)
    } catch {
      // If this is cancelled, the level stays up: a fire may be meant for another waiter.
    }
  }
}
