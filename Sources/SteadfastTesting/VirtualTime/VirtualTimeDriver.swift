import SteadfastQueue
import Synchronization

/// Moves one virtual time from step to step until its body has ended.
struct VirtualTimeDriver {
  /// What to do about a body that is stuck and does not end when it is cancelled.
  enum LastResort {
    /// Leave it behind, suspended for ever.
    case abandon
    /// Report the error and wait on, because the body must not outlive the call.
    case report((VirtualTimeError) -> Void)
  }

  private let time: VirtualTime
  private let lastResort: LastResort
  private let cancelBody: () -> Void
  private var error: VirtualTimeError?
  private var isReported = false
  private var mayBeOnMainActor: Bool
  private var limit: VirtualTimeLimit

  /// A driver that first makes sure, if told so, that the body has not hopped to the main actor.
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

  /// How a drive ended.
  enum Ending {
    /// The body ended by itself.
    case ended
    /// The body was stuck and ended when cancelled.
    case stuck(VirtualTimeError)
    /// The body is stuck and has been left behind.
    case abandoned(VirtualTimeError)
    /// The body was stuck, which has been reported, and ended later.
    case reported
  }

  /// Runs the world until its body has ended, or will not end.
  mutating func drive() async -> Ending {
    time.runJobs()
    while !time.jobs.bodyHasEnded {
      // Each wait for the main actor is a switch of threads: a world that nothing outside has
      // touched does without.
      mayBeOnMainActor = mayBeOnMainActor || time.isUsedFromOutside
      if mayBeOnMainActor, await mainActorAddsJobs() { continue }
      mayBeOnMainActor = false
      switch time.nextStep {
      case .takeTurn: time.runJobs { time.jobs.takeTurn() }
      case .wake:
        guard let deadline = time.clock.nextDeadline, !limit.allows(deadline) else {
          time.runJobs(wake: time.wakeSleepers)
          continue
        }
        let ending = await end { [time] in VirtualTimeError.limitReached(time, outcome: $0) }
        if let ending { return .abandoned(ending) }
      case .endAdvance: time.runJobs(wake: time.endAdvance)
      case .waitForRealWork: await wait(forRealWork: true)
      case .stuck:
        if let abandoned = await giveUp() { return .abandoned(abandoned) }
      }
    }
    if isReported { return .reported }
    return error.map { .stuck($0) } ?? .ended
  }

  /// Cancels a body that is stuck; returns the error to leave it behind with, if even that did not
  /// help.
  private mutating func giveUp() async -> VirtualTimeError? {
    // Real work may begin on the main actor and end before the next look, its job not yet here: only
    // a visit there in which nothing came from outside tells that nothing will.
    let signals = time.jobs.signalsFromOutside
    let addsJobs = await mainActorAddsJobs()
    guard !addsJobs, time.nextStep == .stuck, !time.jobs.bodyHasEnded,
      time.jobs.signalsFromOutside == signals
    else { return nil }
    let waits = await time.knownWaits()
    return await end { [time] in VirtualTimeError.stuck(time, waits: waits, outcome: $0) }
  }

  /// Cancels the body; returns the error to leave it behind with, if it has been cancelled before.
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

  /// Lets the main actor do what it has been given, then runs the jobs that this made ready; true
  /// if there were any.
  ///
  /// The main actor takes its jobs in order, so that those before this one have run by then. A few
  /// more rounds let those run that they started there in turn.
  private func mainActorAddsJobs() async -> Bool {
    await RealWork.perform { await VirtualTimeDriver.passThroughMainActor(rounds: 8) }
    return time.runJobs() > 0
  }

  @MainActor private static func passThroughMainActor(rounds: Int) async {
    for _ in 0..<rounds { await Task.yield() }
  }

  /// Suspends until something outside has made a job ready, and runs it.
  ///
  /// For a world around this one, that is real work.
  private func wait(forRealWork: Bool) async {
    await RealWork.perform { await time.jobs.waitForSignal(forRealWork: forRealWork) }
    time.runJobs()
  }
}
