import Synchronization

/// A level-triggered wake-up for several waiters.
///
/// A fire puts the level up and resumes one waiter; while the level is up, further fires cost one
/// atomic exchange. A waiter takes the level down and only then looks for work, so that no fire is
/// lost between looking and waiting.
final class WakeUp: Sendable {
  private let waiters = Waiters<Void>()
  private let isUp = Atomic(false)

  func fire() {
    // Mostly somebody has fired before; to look costs less than to write what others read.
    guard !isUp.load(ordering: .sequentiallyConsistent),
      !isUp.exchange(true, ordering: .sequentiallyConsistent)
    else { return }
    waiters.resumeLast(returning: ())
  }

  func fireAll() {
    isUp.store(true, ordering: .sequentiallyConsistent)
    waiters.resumeAll(with: .success(()))
  }

  /// Forgets fires that nobody has waited for.
  func takeDown() { isUp.store(false, ordering: .sequentiallyConsistent) }

  /// Returns when fired since the level was last taken down, or when cancelled.
  func wait() async {
    if isUp.exchange(false, ordering: .sequentiallyConsistent) { return }
    do {
      try await waiters.wait {
        isUp.load(ordering: .sequentiallyConsistent) ? .success(()) : nil
      }
      isUp.store(false, ordering: .sequentiallyConsistent)
    } catch {
      // Cancelled: the level stays, a fire may be meant for another waiter.
    }
  }
}
