import SteadfastQueue

/// Runs one virtual time step by step until its body has ended.
struct VirtualTimeDriver {
  /// What to do with a stuck body that does not end when it is cancelled.
  enum LastResort {
    /// Leave it behind, suspended forever.
    case abandon
    /// Report the error and keep waiting, because the body must not outlive the call.
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
  /// With `mayBeginOnMainActor`, the driver first lets the main actor run, because the body may
  /// have moved there.
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

  /// Runs the virtual time until its body has ended, or is left behind.
  mutating func drive() async -> Ending {
    time.runJobs()
    while !time.jobs.bodyHasEnded {
      // Each wait for the main actor switches threads. Skip it in a virtual time that outside code
      // has not used.
      mayBeOnMainActor = mayBeOnMainActor || time.isUsedFromOutside
      if mayBeOnMainActor, await mainActorAddsJobs() { continue }
      mayBeOnMainActor = false
      switch time.nextStep {
      case .takeTurn: time.runJobs { time.jobs.takeTurn() }
      case .wake where time.isAdvancing: takeStepOfAdvance(time.wakeSleepers)
      case .wake:
        guard let deadline = time.clock.nextDeadline, !limit.allows(deadline) else {
          time.runJobs(wake: time.wakeSleepers)
          continue
        }
        let abandoned = await cancelOrAbandonBody { [time] in
          VirtualTimeError.limitReached(time, outcome: $0)
        }
        if let abandoned { return .abandoned(abandoned) }
      case .endAdvance: takeStepOfAdvance(time.endAdvance)
      case .waitForRealWork: await waitForSignal(onlyDuringRealWork: true)
      case .stuck:
        if let abandoned = await cancelStuckBody() { return .abandoned(abandoned) }
      }
    }
    if isReported { return .reported }
    return error.map { .stuck($0) } ?? .ended
  }

  /// Takes a step of an advance; the limit excludes the time by which the step moves the clock.
  private mutating func takeStepOfAdvance(_ step: () -> Void) {
    var moved = Duration.zero
    time.runJobs {
      let now = time.clock.now
      step()
      moved = now.duration(to: time.clock.now)
    }
    limit.exclude(moved)
  }

  /// Cancels a stuck body.
  ///
  /// - Returns: the error to throw for a body that is left behind because an earlier cancellation
  ///   had no effect; otherwise `nil`.
  private mutating func cancelStuckBody() async -> VirtualTimeError? {
    // Real work may start and end on the main actor before the job that it makes ready arrives
    // here. If no signal came from outside while the main actor ran its jobs, none will come.
    let signals = time.jobs.signalsFromOutside
    let addsJobs = await mainActorAddsJobs()
    guard !addsJobs, time.nextStep == .stuck, !time.jobs.bodyHasEnded,
      time.jobs.signalsFromOutside == signals
    else { return nil }
    let waits = await time.knownWaits()
    return await cancelOrAbandonBody { [time] in
      VirtualTimeError.stuck(time, waits: waits, outcome: $0)
    }
  }

  /// Cancels the body or, if it was cancelled earlier, takes the last resort.
  ///
  /// - Returns: the error to throw if the body is left behind; otherwise `nil`.
  private mutating func cancelOrAbandonBody(
    _ makeError: (_ outcome: String?) -> VirtualTimeError
  ) async -> VirtualTimeError? {
    guard error != nil else {
      error = makeError(nil)
      time.runJobs(wake: cancelBody)
      return nil
    }
    switch lastResort {
    case .abandon: return makeError("so it was left behind")
    case .report(let report):
      if !isReported { report(makeError("so the test keeps waiting for it")) }
      isReported = true
      await waitForSignal(onlyDuringRealWork: false)
      return nil
    }
  }

  /// Lets the main actor run its jobs, then runs the jobs that this made ready in the virtual time.
  ///
  /// The main actor runs its jobs in order, so after one round it has run all its earlier jobs. A
  /// few more rounds also run the jobs that those jobs started on the main actor.
  /// - Returns: Whether there were any jobs of the virtual time to run.
  private func mainActorAddsJobs() async -> Bool {
    await RealWork.perform { await VirtualTimeDriver.passThroughMainActor(rounds: 8) }
    return time.runJobs() > 0
  }

  @MainActor private static func passThroughMainActor(rounds: Int) async {
    for _ in 0..<rounds { await Task.yield() }
  }

  /// Suspends until outside code has made a job ready, then runs jobs.
  ///
  /// With `onlyDuringRealWork`, returns as soon as no real work is in flight. For an enclosing
  /// virtual time, the wait is real work.
  private func waitForSignal(onlyDuringRealWork: Bool) async {
    await RealWork.perform {
      await time.jobs.waitForSignal(onlyDuringRealWork: onlyDuringRealWork)
    }
    time.runJobs()
  }
}
