import Synchronization

/// What the workers, callers and other Swift tasks of a queue wait on, one for each event.
///
/// The state itself is in the ``WorkMachine``. Code that changes the state resumes the waiters
/// after the change. A waiter checks the state just before it is suspended, so that it misses no
/// change.
struct Signals: ~Copyable, Sendable {
  /// Wakes idle workers.
  let workers = AsyncSignal()
  /// Wakes the Swift task that stores the results of attempts (``Results``).
  let finisher = AsyncSignal()
  /// Wakes the Swift tasks that cut attempts short, one for each worker.
  let interrupts: [AsyncSignal]
  /// Wakes a worker at the date of the next task.
  let timer = DateTimer()
  /// Wakes the Swift task that releases prefetched tasks if they have to wait too long.
  let claimsAhead = AsyncSignal()
  /// Callers that have requested to cut an attempt short, and wait until that has happened.
  let interruption = Waiters<Void>()
  /// Callers that wait for the claim in flight to return.
  let claimEnd = Waiters<Void>()
  /// Callers that wait until results are stored, or until another caller's command is carried out.
  let settlement = Waiters<Void>()
  /// Callers of `pause()` that wait for the last attempts to begin.
  let pauseProgress = Waiters<Void>()
  /// Callers that wait for the run to end.
  let runEnd = Waiters<Void>()
  /// Wakes the Swift task that follows the monitors of conditions.
  let monitors = AsyncSignal()
  /// A run that begins, and waits for the first values of the monitors.
  let conditionsReported = Waiters<Void>()
  /// Callers that wait until the queue is idle.
  let idleWaiters = IdleWaiters()
  /// Whether the store is unavailable.
  ///
  /// While it is, cancelled callers stop waiting for other calls.
  let availability: StoreAvailability
  /// Callers that read or change the stored pause, one at a time.
  let pauseLock: KeyedMutex
  /// Whether the stored pause was read since the queue was made.
  let hasReadPause = Atomic(false)
  /// How long attempts may continue once the queue is being shut down.
  let shutDownLimit = ShutDownLimit()
  /// Whether the last run that began is a pass: a run that ends when no task is available.
  ///
  /// This is a copy of the machine's state, which callers can read without locking the machine.
  let isPassing = Atomic(false)

  init(workers: Int, _ availability: StoreAvailability) {
    self.availability = availability
    interrupts = (0..<workers).map { _ in AsyncSignal() }
    pauseLock = KeyedMutex(availability)
    availability.notifyWhenUnavailable { [weak claimEnd, weak settlement] in
      claimEnd?.resumeAll(with: .success(()))
      settlement?.resumeAll(with: .success(()))
    }
  }

  func notifyOfClaimEnd() {
    claimEnd.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  func notifyOfStepWhilePaused() {
    pauseProgress.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  func notifyOfRunEnd() {
    pauseProgress.resumeAll(with: .success(()))
    runEnd.resumeAll(with: .success(()))
    idleWaiters.notifyOfStep()
  }

  /// Wakes the workers and callers whose wait may end because the run stops.
  func notifyOfStop() {
    workers.signalAll()
    pauseProgress.resumeAll(with: .success(()))
    conditionsReported.resumeAll(with: .success(()))
  }
}

/// A signal that stays set until a waiter has received it.
///
/// ``signal()`` sets the signal and resumes one waiter. While the signal is set, a further call
/// costs one atomic read. After ``wait()`` has returned, the waiter must check for work: several
/// calls of ``signal()`` may have resumed it only once.
final class AsyncSignal: Sendable {
  private let waiters = Waiters<Void>()
  private let isSet = Atomic(false)

  func signal() {
    // Usually the signal is already set. Then avoid a write, which costs more than a read.
    guard !isSet.load(ordering: .sequentiallyConsistent),
      !isSet.exchange(true, ordering: .sequentiallyConsistent)
    else { return }
    waiters.resumeLast(returning: ())
  }

  func signalAll() {
    isSet.store(true, ordering: .sequentiallyConsistent)
    waiters.resumeAll(with: .success(()))
  }

  /// Discards a signal that no waiter has received.
  func reset() { isSet.store(false, ordering: .sequentiallyConsistent) }

  /// Waits until the signal is set, and clears it; returns early if cancelled.
  func wait() async {
    if isSet.exchange(false, ordering: .sequentiallyConsistent) { return }
    do {
      try await waiters.wait {
        isSet.load(ordering: .sequentiallyConsistent) ? .success(()) : nil
      }
      isSet.store(false, ordering: .sequentiallyConsistent)
    } catch {
      // If this is cancelled, leave the signal set, for another waiter.
    }
  }
}

/// Callers that wait until a queue is idle, and that are resumed after each step that may make it
/// idle.
///
/// While no caller waits, a step costs one atomic read.
final class IdleWaiters: Sendable {
  private let waiters = Waiters<Void>()
  private let waiterCount = Atomic(0)

  /// Resumes the callers, because a claim or a run has ended, or results were stored.
  func notifyOfStep() {
    guard waiterCount.load(ordering: .sequentiallyConsistent) > 0 else { return }
    waiters.resumeAll(with: .success(()))
  }

  /// Waits for the next step, unless `check` returns a result.
  ///
  /// - Throws: the error in the result of `check`; `CancellationError` when cancelled.
  func wait(unless check: () -> Result<Void, any Error>?) async throws {
    // Count this caller before `check` is called, so that a step after the check resumes it.
    waiterCount.add(1, ordering: .sequentiallyConsistent)
    defer { waiterCount.subtract(1, ordering: .sequentiallyConsistent) }
    try await waiters.wait(unless: check)
  }
}

/// The deadline for the attempts of a queue that is being shut down.
final class ShutDownLimit: Sendable {
  private let deadline = Mutex<Duration?>(nil)
  private let changed = AsyncSignal()

  /// Sets the deadline, unless an earlier one is already set.
  func set(_ new: Duration) {
    deadline.withLock { $0 = min($0 ?? new, new) }
    changed.signalAll()
  }

  /// Waits until a deadline is set and has passed on the stopwatch of `time`.
  ///
  /// - Returns: `true`; `false` if the wait was cancelled.
  func waitUntilPassed(by time: QueueTime) async -> Bool {
    while !Task.isCancelled {
      guard let deadline = deadline.withLock({ $0 }) else {
        await changed.wait()
        continue
      }
      let left = deadline - time.stopwatch()
      if left <= .zero { return true }
      await withTaskGroup { group in
        // If this is cancelled, the deadline may have changed, so the loop reads it again.
        group.addTask { try? await time.wait(for: left) }
        group.addTask { await self.changed.wait() }
        await group.next()
        group.cancelAll()
      }
    }
    return false
  }
}
