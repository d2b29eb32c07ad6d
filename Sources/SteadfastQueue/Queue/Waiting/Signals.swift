import Synchronization

/// The signals that wake a queue's workers and callers, one for each reason.
///
/// The state that they wait for is in the ``WorkMachine``. Code that changes the state signals
/// after the change. A waiter checks the state at the last moment, so that it misses no change.
struct Signals: ~Copyable, Sendable {
  /// Wakes idle workers.
  let workers = AsyncSignal()
  /// Wakes the finisher, which stores the ends of attempts.
  let finisher = AsyncSignal()
  /// Wakes the Swift tasks that cut attempts short, one for each worker.
  let interrupts: [AsyncSignal]
  /// Wakes a worker at the date of the next task.
  let timer = DateTimer()
  /// Wakes the Swift task that releases tasks that were prefetched too early.
  let claimsAhead = AsyncSignal()
  /// Callers that have interrupted an attempt, and wait until it is cut short.
  let interruption = Waiters<Void>()
  /// Callers that wait for the claim in flight.
  let claimEnd = Waiters<Void>()
  /// A run that ends and waits for the finisher, and callers whose requests wait for others.
  let settlement = Waiters<Void>()
  /// Callers that pause the queue, and wait for the last attempts to begin.
  let pauseProgress = Waiters<Void>()
  /// Callers that wait for the run to end.
  let runEnd = Waiters<Void>()
  /// Wakes the Swift task that follows the monitors of conditions.
  let monitors = AsyncSignal()
  /// A run that begins, and waits for the first values of the monitors.
  let conditionsReported = Waiters<Void>()
  /// Callers that wait until the queue is idle.
  let idleWaiters = IdleWaiters()
  /// Tells whether the store is unavailable.
  ///
  /// Then cancelled callers stop waiting for other calls.
  let availability: StoreAvailability
  /// Callers that read or change the stored pause, one at a time.
  let pauseMutex: KeyedMutex
  /// Whether the stored pause was read since the queue was made.
  let hasReadPause = Atomic(false)
  /// How long attempts may go on once the queue shuts down.
  let shutDownLimit = ShutDownLimit()
  /// Whether the current run, or the last one, is a pass, which ends when nothing is available.
  ///
  /// It mirrors the machine's mode, so that callers that enqueue need not lock the machine.
  let isPassing = Atomic(false)

  init(workers: Int, _ availability: StoreAvailability) {
    self.availability = availability
    interrupts = (0..<workers).map { _ in AsyncSignal() }
    pauseMutex = KeyedMutex(availability)
    availability.notifyWhenUnavailable { [weak claimEnd, weak settlement] in
      claimEnd?.resumeAll(with: .success(()))
      settlement?.resumeAll(with: .success(()))
    }
  }

  /// Signals that a claim has returned.
  func notifyOfClaimEnd() {
    claimEnd.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  /// Signals that a worker has taken a step in a paused queue.
  func notifyOfStepWhilePaused() {
    pauseProgress.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  /// Signals that a run has ended.
  func notifyOfRunEnd() {
    pauseProgress.resumeAll(with: .success(()))
    runEnd.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  /// Wakes the workers and the callers of `pause()`, whose waits a stop may have made pointless.
  func notifyOfStop() {
    workers.signalAll()
    pauseProgress.resumeAll(with: .success(()))
    conditionsReported.resumeAll(with: .success(()))
  }
}

/// A level-triggered signal for several waiters.
///
/// A signal raises the level and resumes one waiter. While the level is up, each further signal
/// costs one atomic read. A waiter lowers the level first and only then looks for work, so that no
/// signal is lost between looking and waiting.
final class AsyncSignal: Sendable {
  private let waiters = Waiters<Void>()
  private let isUp = Atomic(false)

  func signal() {
    // Usually the level is up already. A read costs less than a write to a value that others read.
    guard !isUp.load(ordering: .sequentiallyConsistent),
      !isUp.exchange(true, ordering: .sequentiallyConsistent)
    else { return }
    waiters.resumeLast(returning: ())
  }

  func signalAll() {
    isUp.store(true, ordering: .sequentiallyConsistent)
    waiters.resumeAll(with: .success(()))
  }

  /// Lowers the level, and so discards a signal that no waiter has received.
  func reset() { isUp.store(false, ordering: .sequentiallyConsistent) }

  /// Waits until the level is up, and lowers it; returns early if cancelled.
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

/// Notifies the callers that wait for an idle queue of each step that may make it idle.
///
/// While no caller waits, a step costs one read of an atomic number.
final class IdleWaiters: Sendable {
  private let waiters = Waiters<Void>()
  private let waiterCount = Atomic(0)

  /// Wakes the waiters because something has ended: a claim, the storing of ends, or a run.
  func notifyOfStep() {
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

/// The deadline for the attempts of a queue that is being shut down, enforced by its run.
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
  func waitUntilPassed(by time: QueueTime) async -> Bool {
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
