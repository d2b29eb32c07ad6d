import SteadfastRetry
import Synchronization

/// Runs that have a limited time, as a process has that the system has woken for a while.
extension TaskQueue {
  /// Performs the tasks that are available now and can be expected to end in time.
  ///
  /// It is ``runAvailable()`` for a process that may run for some seconds only: an app in the
  /// background, a function on a server. A task begins only if the last three attempts of its name
  /// in such runs took, on average, no longer than what is left of the time. A name of which none
  /// was measured is tried. Tasks that are left out wait as before.
  ///
  /// When the time is up, the attempts under way are cancelled and their tasks released unharmed,
  /// with no retry counted, and the call waits for their handlers. Such an attempt counts for the
  /// average with twice the time that it had, or with the average so far if that is longer. The
  /// ends are stored after that, so keep a second in reserve. A store that is gone is waited for
  /// until the time is up: then the call throws if the end of an attempt is not stored.
  ///
  /// The averages are a value of the store, and outlast the process. If a name's average is longer
  /// than the whole time while tasks of it wait, its oldest attempt is forgotten. So it is tried
  /// again in the fourth such run at the latest: one slow attempt does not exclude its name for
  /// good.
  ///
  /// - Parameter budget: how long attempts may go on, from the call on, including the time in which
  ///   the store is opened and the queue looks after what it keeps. With zero or less, nothing is
  ///   performed.
  /// - Returns: The number of attempts; 0 if the queue is paused, or the store can't be opened and
  ///   read in time.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func run(within budget: Duration) async throws -> Int {
    let deadline = time.deadline(after: budget)
    try checkCanRun()
    guard let times = try await opening({ try await runTimes(until: deadline) }),
      time.stopwatch() < deadline
    else {
      return 0
    }
    let cutoff = machine.withLock { $0.nextCutoff(now: now) }
    return try await run(
      .pass(cutoff: cutoff),
      within: RunBudget(deadline: deadline, times: times)
    )
  }

  /// Opens the store, and reads how long attempts took; `nil` if the time is up before that.
  private nonisolated func runTimes(until deadline: Duration) async throws -> RunTimes? {
    do {
      return try await withTimeout(deadline - time.stopwatch(), clock: time.clock) {
        try await store.open()
        return RunTimes(try await store.value(named: RunTimes.valueName))
      }
    } catch is TimeoutError where time.stopwatch() >= deadline {
      return nil
    }
  }

  /// Returns how many tasks of each name may be claimed within the run's time, if it is limited.
  nonisolated func roomWithinBudget(_ room: [String: Int]) -> [String: Int] {
    guard signals.isPassing.load(ordering: .relaxed) else { return room }
    let now = time.stopwatch()
    return upkeep.withLock { $0.budget?.room(in: room, at: now) ?? room }
  }

  /// Notes how long an attempt took, if the run's time is limited.
  nonisolated func noteRunTime(_ time: Duration, of name: String) {
    guard signals.isPassing.load(ordering: .relaxed) else { return }
    let (now, wasCutShort) = (self.time.stopwatch(), Task.isCancelled)
    upkeep.withLock { $0.budget?.note(time, of: name, wasCutShort: wasCutShort, at: now) }
  }

  /// Ends the run when its time is up.
  nonisolated func keepToBudget(_ deadline: Duration) async {
    let left = deadline - time.stopwatch()
    // If this is cancelled, the run has ended before.
    try? await time.wait(for: max(left, .nanoseconds(1)))
    guard !Task.isCancelled else { return }
    machine.withLock { $0.endPass() }
    stopMayHaveCome()
    for interrupt in signals.interrupts { interrupt.signal() }
  }

  /// Stores what a run with limited time has learned about how long attempts take.
  nonisolated func keepRunTimes() async {
    guard let budget = upkeep.withLock({ $0.budget.take() }) else { return }
    do {
      var waiting: Set<String> = []
      for name in budget.tooLong
      where try await store.contains(TaskFilter(names: [name], states: [.waiting])) {
        waiting.insert(name)
      }
      guard !waiting.isEmpty || !budget.measured.isEmpty else { return }
      try await setValue(named: RunTimes.valueName, .relaxed) { bytes in
        var times = RunTimes(bytes)
        budget.update(&times, waiting: waiting)
        return try times.bytes()
      }
    } catch {
      fail(error, to: "keep how long attempts took")
    }
  }
}
