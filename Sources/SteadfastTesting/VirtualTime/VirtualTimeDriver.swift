import SteadfastQueue
import Synchronization

/// Runs one virtual time step by step until its body has ended.
struct VirtualTimeDriver {
  /// What to do with a body that is stuck and does not end when it is cancelled.
  enum LastResort {
    /// Leave it behind, suspended for ever.
    case abandon
    /// Report the error and go on waiting, because the body must not outlive the call.
    case report((VirtualTimeError) -> Void)
  }

  private let time: VirtualTime
  private let lastResort: LastResort
  private let cancelBody: () -> Void
  private var error: VirtualTimeError?
  private var isReported = false
  private var mayBeOnMainActor: Bool
  private var limit: VirtualTimeLimit

  /// Makes a driver.
  ///
  /// With `mayBeginOnMainActor`, it first gives the main actor a chance to run, because the body
  /// may have moved there.
  init(
    time: VirtualTime,
    mayBeginOnMainActor: Bool,
    lastResort: LastResort,
    cancelBody: @escaping () -> Void
  ) {
    self.time = time
    limit = time.limit
    mayBeOnMainActor = mayBeginOnMainActor
    self.lastResort = lastResort
    self.cancelBody = cancelBody
  }

  /// How ``drive()`` ended.
  enum Ending {
    /// The body ended by itself.
    case ended
    /// The body was stuck and ended when cancelled.
    case stuck(VirtualTimeError)
    /// The body is stuck and has been left behind.
    case abandoned(VirtualTimeError)
    /// The body was stuck, was reported, and ended later.
    case reported
  }

  /// Runs the virtual time until its body has ended, or can't end.
  mutating func drive() async -> Ending {
    time.runJobs()
    while !time.jobs.bodyHasEnded {
      // Each wait for the main actor is a switch of threads. It is left out in a virtual time that
      // nothing outside has touched.
      mayBeOnMainActor = mayBeOnMainActor || time.isUsedFromOutside
      if mayBeOnMainActor, await mainActorAddsJobs() { continue }
      mayBeOnMainActor = false
      switch time.nextStep {
      case .takeTurn: time.runJobs { time.jobs.takeTurn() }
      case .wake where time.isAdvancing: advance(time.wakeSleepers)
      case .wake:
        guard let deadline = time.clock.nextDeadline, !limit.allows(deadline) else {
          time.runJobs(wake: time.wakeSleepers)
          continue
        }
        let ending = await end { [time] in VirtualTimeError.limitReached(time, outcome: $0) }
        if let ending { return .abandoned(ending) }
      case .endAdvance: advance(time.endAdvance)
      case .waitForRealWork: await wait(forRealWork: true)
      case .stuck:
        if let abandoned = await giveUp() { return .abandoned(abandoned) }
      }
    }
    if isReported { return .reported }
    return error.map { .stuck($0) } ?? .ended
  }

  /// Takes a step of an advance, which the limit does not concern.
  private mutating func advance(_ step: () -> Void) {
    var moved = Duration.zero
    time.runJobs {
      let now = time.clock.now
      step()
      moved = now.duration(to: time.clock.now)
    }
    limit.exclude(moved)
  }

  /// Cancels a body that is stuck.
  ///
  /// - Returns: the error to throw for a body that is left behind, if it was cancelled before
  ///   without effect.
  private mutating func giveUp() async -> VirtualTimeError? {
    // Real work may begin on the main actor and end before the next look, while its job has not
    // arrived here. If nothing came from outside during a visit there, nothing will.
    let signals = time.jobs.signalsFromOutside
    let addsJobs = await mainActorAddsJobs()
    guard !addsJobs, time.nextStep == .stuck, !time.jobs.bodyHasEnded,
      time.jobs.signalsFromOutside == signals
    else { return nil }
    let waits = await time.knownWaits()
    return await end { [time] in VirtualTimeError.stuck(time, waits: waits, outcome: $0) }
  }

  /// Cancels the body.
  ///
  /// - Returns: the error to throw for a body that is left behind, if it was cancelled before.
  private mutating func end(
    _ makeError: (_ outcome: String?) -> VirtualTimeError
  ) async -> VirtualTimeError? {
    guard error != nil else {
      error = makeError(nil)
      time.runJobs(wake: cancelBody)
      return nil
    }
    switch lastResort {
    case .abandon: return makeError("and was left behind")
    case .report(let report):
      if !isReported { report(makeError("and is waited for")) }
      isReported = true
      await wait(forRealWork: false)
      return nil
    }
  }

  /// Lets the main actor run its jobs, then runs the jobs that these made ready.
  ///
  /// The main actor runs its jobs in order, so the jobs before this one have run by then. A few
  /// more rounds let the jobs run that those jobs started there.
  /// - Returns: Whether there were any jobs to run.
  private func mainActorAddsJobs() async -> Bool {
    await RealWork.perform { await VirtualTimeDriver.passThroughMainActor(rounds: 8) }
    return time.runJobs() > 0
  }

  @MainActor private static func passThroughMainActor(rounds: Int) async {
    for _ in 0..<rounds { await Task.yield() }
  }

  /// Suspends until something outside has made a job ready, and runs it.
  ///
  /// For a virtual time around this one, the wait is real work.
  private func wait(forRealWork: Bool) async {
    await RealWork.perform { await time.jobs.waitForSignal(forRealWork: forRealWork) }
    time.runJobs()
  }
}
