import Synchronization

/// A level-triggered signal for several waiters.
///
/// A signal raises the level and resumes one waiter. While the level is up, each further signal
/// costs one atomic read. A waiter lowers the level first and only then looks for work, so that no
/// signal is lost between looking and waiting.
final class AsyncSignal: Sendable {
  private let waiters = Waiters<Void>()
  private let isUp = Atomic(false)

  func signal() {
    // Usually the level is up already. A read costs less than a write of what other threads read.
    guard !isUp.load(ordering: .sequentiallyConsistent),
      !isUp.exchange(true, ordering: .sequentiallyConsistent)
    else { return }
    waiters.resumeLast(returning: ())
  }

  func signalAll() {
    isUp.store(true, ordering: .sequentiallyConsistent)
    waiters.resumeAll(with: .success(()))
  }

  /// Lowers the level, and so forgets signals that no waiter has waited for.
  func reset() { isUp.store(false, ordering: .sequentiallyConsistent) }

  /// Returns once signalled since the level was last lowered, or when cancelled.
  func wait() async {
    if isUp.exchange(false, ordering: .sequentiallyConsistent) { return }
    do {
      try await waiters.wait {
        isUp.load(ordering: .sequentiallyConsistent) ? .success(()) : nil
      }
      isUp.store(false, ordering: .sequentiallyConsistent)
    } catch {
      // If this is cancelled, the level stays up: a signal may be meant for another waiter.
    }
  }
}
