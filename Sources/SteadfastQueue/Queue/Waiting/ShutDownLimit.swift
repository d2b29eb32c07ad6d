import Synchronization

/// The deadline for the attempts of a queue that is being shut down; its run keeps to it.
final class ShutDownLimit: Sendable {
  private let deadline = Mutex<Duration?>(nil)
  private let changed = AsyncSignal()

  /// Sets a deadline; of several, the earliest counts.
  func set(_ new: Duration) {
    deadline.withLock { $0 = min($0 ?? new, new) }
    changed.signalAll()
  }

  /// Waits until a deadline has passed, as `time` measures it.
  ///
  /// - Returns: Whether one has passed; `false` if the wait was cancelled before.
  func hasPassed(by time: QueueTime) async -> Bool {
    while !Task.isCancelled {
      guard let deadline = deadline.withLock({ $0 }) else {
        await changed.wait()
        continue
      }
      let left = deadline - time.stopwatch()
      if left <= .zero { return true }
      await withTaskGroup { group in
        // If this is cancelled, the loop looks at the deadline again.
        group.addTask { try? await time.wait(for: left) }
        group.addTask { await self.changed.wait() }
        await group.next()
        group.cancelAll()
      }
    }
    return false
  }
}
