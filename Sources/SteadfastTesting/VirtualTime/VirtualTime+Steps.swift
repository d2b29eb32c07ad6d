import SteadfastQueue
import SteadfastRetry
import Synchronization

extension VirtualTime {
  /// What to do now that no job can run.
  var nextStep: IdleStep {
    let firstDeadline = clock.nextDeadline
    return jobs.state.withLock { state in
      IdleStep(
        mode: mode,
        firstDeadline: firstDeadline,
        firstTarget: state.advances.firstDeadline,
        hasTurn: state.turns.hasNext,
        isHeld: state.isHeld
      )
    }
  }

  /// Whether code outside of the world has slept on its clock or made its tasks ready, though no
  /// real work was announced.
  var isUsedFromOutside: Bool {
    jobs.state.withLock { $0.hasCallsFromOutside }
      || clock.state.withLock { $0.hasSleepsFromOutside }
  }

  /// What is waited for, and why it may never come, as far as that is known.
  func knownWaits() async -> [String] {
    var texts: [String] = []
    for wait in jobs.state.withLock({ $0.waits.all }) { texts.append(await wait.describe(clock)) }
    return texts
  }

  /// Runs `wake`, then jobs until none is left; returns how many.
  ///
  /// Stops early for a caller that was cancelled after the body's end, lest a task that spins keep
  /// it for ever.
  @discardableResult func runJobs(wake: () -> Void = {}) -> Int {
    clock.state.withLock { $0.drivingThread = .current }
    defer { clock.state.withLock { $0.drivingThread = nil } }
    return jobs.run(wake: wake) { Task.isCancelled && jobs.bodyHasEnded }
  }

  /// Moves the time to the first deadline, and wakes who is due there: one sleeper, or all of them
  /// where their order is to be shuffled.
  func wakeSleepers() {
    guard let deadline = clock.nextDeadline else { return }
    switch order {
    case .inOrder: _ = clock.wakeFirstSleeper(through: deadline)
    case .shuffled: clock.advance(to: deadline)
    }
  }

  /// Moves the time to the target of the first advance and ends that advance.
  func endAdvance() {
    guard let (target, advance) = jobs.state.withLock({ $0.popAdvance() }) else { return }
    clock.advance(to: target)
    advance.resume()
  }

  /// Closes the world to all that its body left behind; returns the error that says what it was.
  ///
  /// Sleeps that are left end as if cancelled, and all jobs run on the global pool: nothing that
  /// can end is kept from it.
  func close() -> VirtualTimeError? {
    let error = VirtualTimeError.sleepersLeft(self)
    jobs.close()
    clock.cancelSleeps()
    return error
  }
}
