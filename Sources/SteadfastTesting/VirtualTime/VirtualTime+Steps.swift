import SteadfastQueue
import SteadfastRetry
import Synchronization

extension VirtualTime {
  /// The step to take now that no job can run.
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

  /// Whether an advance is under way, to whose target each step of the time leads.
  var isAdvancing: Bool { jobs.state.withLock { $0.advances.firstDeadline != nil } }

  /// Whether code outside of the virtual time has slept on its clock, or has made its tasks ready
  /// without being announced as real work.
  var isUsedFromOutside: Bool {
    jobs.state.withLock { $0.hasCallsFromOutside }
      || clock.state.withLock { $0.hasSleepsFromOutside }
  }

  /// Returns what tasks wait for and why it may never come, as far as that is known.
  func knownWaits() async -> [String] {
    var texts: [String] = []
    for wait in jobs.state.withLock({ $0.waits.all }) { texts.append(await wait.describe(clock)) }
    return texts
  }

  /// Runs `wake`, then jobs until none is left, and returns the number of jobs.
  ///
  /// It stops early if the caller is cancelled and the body has ended, so that a task that spins
  /// can't keep it running for ever.
  @discardableResult func runJobs(wake: () -> Void = {}) -> Int {
    clock.state.withLock { $0.drivingThread = .current }
    defer { clock.state.withLock { $0.drivingThread = nil } }
    return jobs.run(wake: wake) { Task.isCancelled && jobs.bodyHasEnded }
  }

  /// Moves the time to the first deadline, and wakes what is due there.
  ///
  /// That is one sleeper, or all of them if their order is to be shuffled.
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

  /// Closes the virtual time; returns an error if its body has left tasks asleep.
  ///
  /// Sleeps that are left end as if they were cancelled, and remaining jobs run on the global pool,
  /// so that every task that can end does.
  func close() -> VirtualTimeError? {
    let error = VirtualTimeError.sleepersLeft(self)
    jobs.close()
    clock.cancelSleeps()
    return error
  }
}
