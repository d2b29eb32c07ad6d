import SteadfastQueue

/// Runs one virtual time step by step until its body has ended.
struct VirtualTimeDriver {
  /// What to do with a body that can't continue, and does not end when it is cancelled.
  enum LastResort {
    /// Return without waiting for the body, which stays suspended forever.
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
  /// If `mayBeginOnMainActor` is true, the driver first lets the main actor run its jobs, because
  /// the body may start there.
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
    /// The body could not continue, and ended when it was cancelled.
    case stuck(VirtualTimeError)
    /// The body can't continue, and did not end when it was cancelled.
    case abandoned(VirtualTimeError)
    /// The body could not continue, which was reported, and ended later.
    case reported
  }

  /// Runs the virtual time until its body has ended, or has been abandoned.
  mutating func drive() async -> Ending {
    time.runJobs()
    while !time.jobs.bodyHasEnded {
      // Waiting for the main actor is slow, because it switches threads. Skip it as long as no code
      // outside of the virtual time has used the virtual time.
      mayBeOnMainActor = mayBeOnMainActor || time.isUsedFromOutside
      if mayBeOnMainActor, await runJobsFromMainActor() { continue }
      mayBeOnMainActor = false
      switch time.nextStep {
      case .takeTurn: time.runJobs { time.jobs.takeTurn() }
      case .wake where time.isAdvancing: takeStepOfAdvance(time.wakeSleepers)
      case .wake:
        guard let deadline = time.clock.nextDeadline, !limit.countMove(to: deadline) else {
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

  /// Performs a step of ``VirtualTime/advance(to:)``; its move of the clock does not count towards
  /// the limit.
  private mutating func takeStepOfAdvance(_ step: () -> Void) {
    var moved = Duration.zero
    time.runJobs {
      let now = time.clock.now
      step()
      moved = now.duration(to: time.clock.now)
    }
    limit.exclude(moved)
  }

  /// Cancels a body that can't continue.
  ///
  /// - Returns: the error to throw if an earlier cancellation had no effect and the body is
  ///   abandoned; otherwise `nil`.
  private mutating func cancelStuckBody() async -> VirtualTimeError? {
    // Real work on the main actor may have ended, while the job that it makes ready has not been
    // enqueued yet. If no signal comes from outside while the main actor runs its jobs, none will.
    let signals = time.jobs.signalsFromOutside
    let addsJobs = await runJobsFromMainActor()
    guard !addsJobs, time.nextStep == .stuck, !time.jobs.bodyHasEnded,
      time.jobs.signalsFromOutside == signals
    else { return nil }
    let waits = await time.describeKnownWaits()
    return await cancelOrAbandonBody { [time] in
      VirtualTimeError.stuck(time, waits: waits, outcome: $0)
    }
  }

  /// Cancels the body or, if it was cancelled earlier, does what ``LastResort`` says.
  ///
  /// - Returns: the error to throw if the body is abandoned; otherwise `nil`.
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
  /// The main actor runs its jobs in order, so one `Task.yield()` there waits for all earlier jobs.
  /// A few more also wait for jobs that those jobs started on the main actor.
  /// - Returns: Whether any job of the virtual time has run.
  private func runJobsFromMainActor() async -> Bool {
    await RealWork.perform { await VirtualTimeDriver.passThroughMainActor(rounds: 8) }
    return time.runJobs() > 0
  }

  @MainActor private static func passThroughMainActor(rounds: Int) async {
    for _ in 0..<rounds { await Task.yield() }
  }

  /// Suspends until code outside of the virtual time has made a job ready, then runs jobs.
  ///
  /// If `onlyDuringRealWork` is true, the method also returns once no real work is in flight. If
  /// this virtual time runs inside another one, the other one treats the wait as real work.
  private func waitForSignal(onlyDuringRealWork: Bool) async {
    await RealWork.perform {
      await time.jobs.waitForSignal(onlyDuringRealWork: onlyDuringRealWork)
    }
    time.runJobs()
  }
}
