import Synchronization

/// What a queue wakes its workers and its callers with, each for one reason.
///
/// The state that they wait for is in the ``WorkMachine``. Code that changes it signals after the
/// change; a waiter checks at the last moment, so that it misses none.
struct Signals: ~Copyable, Sendable {
  /// Wakes idle workers.
  let workers = AsyncSignal()
  /// Wakes the finisher, which stores the ends of attempts.
  let finisher = AsyncSignal()
  /// Wakes the Swift tasks that cut attempts short, one for each worker.
  let interrupts: [AsyncSignal]
  /// Wakes a worker at the date of the next task.
  let timer = DateTimer()
  /// Wakes the Swift task that releases tasks which were claimed ahead too early.
  let claimsAhead = AsyncSignal()
  /// Callers that have interrupted an attempt, and wait until it is cut short.
  let interruption = Waiters<Void>()
  /// Callers that wait for the claim in flight.
  let claimEnd = Waiters<Void>()
  /// The run that ends, and waits for the finisher; callers whose requests come after others.
  let settlement = Waiters<Void>()
  /// Callers that pause the queue, and wait for the last attempts to begin.
  let pauseProgress = Waiters<Void>()
  /// Callers that wait for the run to end.
  let runEnd = Waiters<Void>()
  /// Wakes the Swift task that follows the monitors of conditions.
  let monitors = AsyncSignal()
  /// A run that begins, and waits for the first values of the monitors.
  let conditionsTold = Waiters<Void>()
  /// Callers that wait until the queue is idle.
  let idleWatch = IdleWatch()
  /// Whether the store is gone, which ends the waits of cancelled callers.
  let absence: StoreAbsence
  /// Callers that read or change the stored pause, one at a time.
  let pauseTurns: KeyedTurns
  /// Whether the stored pause was read since the queue was made.
  let hasReadPause = Atomic(false)
  /// How long attempts may go on once the queue shuts down.
  let shutDownLimit = ShutDownLimit()
  /// Whether the current run, or the last one, is a pass, which ends when nothing is available.
  ///
  /// It is the machine's mode. Callers that enqueue read it here without the machine's lock.
  let isPassing = Atomic(false)

  init(workers: Int, _ absence: StoreAbsence) {
    self.absence = absence
    interrupts = (0..<workers).map { _ in AsyncSignal() }
    pauseTurns = KeyedTurns(absence)
    absence.listen { [weak claimEnd, weak settlement] in
      claimEnd?.resumeAll(with: .success(()))
      settlement?.resumeAll(with: .success(()))
    }
  }

  /// Signals that a claim has returned.
  func claimHasEnded() {
    claimEnd.resumeAll(with: .success(()))
    idleWatch.step()
  }

  /// Signals that a worker has taken a step in a paused queue.
  func pausedWorkerHasStepped() {
    pauseProgress.resumeAll(with: .success(()))
    idleWatch.step()
  }

  /// Signals that a run has ended.
  func runHasEnded() {
    pauseProgress.resumeAll(with: .success(()))
    runEnd.resumeAll(with: .success(()))
    idleWatch.step()
  }

  /// Wakes the workers and the callers of `pause()`: what they wait for may not come any more.
  func stopMayHaveCome() {
    workers.signalAll()
    pauseProgress.resumeAll(with: .success(()))
    conditionsTold.resumeAll(with: .success(()))
  }
}
