import SteadfastQueue
import SteadfastRetry
import Synchronization

/// A clock for one test, and one thread on which the test's tasks run in the same order each time.
///
/// ``withVirtualTime(_:order:date:limit:encodesPayloads:_:)`` and the test trait `.virtualTime`
/// make a virtual time. Child tasks, `async let`, task groups and default actors run on its thread.
/// The main actor, detached tasks, `Task { }`, actors with executors of their own and system calls
/// run elsewhere. The virtual time waits for their work only inside ``withRealWork(_:)``.
public final class VirtualTime: Sendable {
  /// The virtual time in which the current task runs; `nil` outside of a virtual time.
  @TaskLocal public static var current: VirtualTime?

  /// The virtual time in which the current task runs.
  ///
  /// - Throws: a ``VirtualTimeError`` with the code ``VirtualTimeError/Code/missing`` outside of a
  ///   virtual time.
  public static var required: VirtualTime {
    get throws(VirtualTimeError) {
      guard let current else { throw .missing }
      return current
    }
  }

  /// The clock to pass to the code under test.
  public let clock: VirtualClock

  let mode: Mode
  let order: Order
  let limit: VirtualTimeLimit
  let jobs: VirtualTimeExecutor

  init(
    mode: Mode,
    order: Order,
    clock: VirtualClock = VirtualClock(),
    limit: Duration? = nil,
    encodesPayloads: Bool = true
  ) {
    self.mode = mode
    self.order = order
    self.clock = clock
    self.limit = VirtualTimeLimit(limit)
    jobs = VirtualTimeExecutor(order: order, encodesPayloads: encodesPayloads)
  }

  /// The executor of this virtual time.
  ///
  /// Use it to start an unstructured task inside the virtual time:
  /// `Task(executorPreference: time.executor) { … }`.
  public var executor: any TaskExecutor { jobs }

  /// Moves the time forward by `duration`, like ``advance(to:)``.
  ///
  /// A negative duration is a programming error.
  public func advance(by duration: Duration) async {
    guard duration >= .zero else {
      preconditionFailure("VirtualTime.advance(by: \(duration)) would move the time backwards")
    }
    await advance(to: clock.now.advanced(by: duration))
  }

  /// Moves the time forward to `instant`, and returns when everything due by then has been done.
  ///
  /// All other tasks run until none of them can continue. Then the time moves to the next deadline,
  /// the tasks that sleep until then wake, and so on. The caller continues last. If the instant is
  /// in the past, the other tasks run, and the time does not move. The method waits for real work
  /// in flight. When the calling task is cancelled, the method returns at once without moving the
  /// time further.
  public func advance(to instant: VirtualClock.Instant) async {
    // The only possible error is a CancellationError, and the caller can check `Task.isCancelled`.
    try? await CancellableSuspension.suspend { continuation in
      let (ticket, driver) = jobs.state.withLock { $0.addAdvance(continuation, to: instant) }
      driver?.resume()
      return (ticket, ticket == nil ? [continuation] : [])
    } withdraw: { ticket in
      jobs.state.withLock { $0.removeAdvance(ticket) }
    }
  }

  /// Performs work that takes real time, and stops this virtual time until the work ends.
  ///
  /// Wrap everything that happens outside of this virtual time: a request, access to a file, a
  /// process, a detached task. The work must not sleep on ``clock``: the clock is stopped, so the
  /// sleep would never end. Several calls in flight may end in any order. For calls that must run
  /// one at a time, use `RealWork.performInTurn`, as the stores of a task queue do.
  nonisolated(nonsending)
    public func withRealWork<Success: ~Copyable, Failure: Error>(
      _ operation: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async throws(Failure) -> Success
  {
    jobs.realWorkBegan()
    defer { jobs.realWorkEnded() }
    return try await operation()
  }
}

extension VirtualTime {
  /// What moves the time.
  @nonexhaustive
  public enum Mode: Sendable, Hashable {
    /// When nothing else can run, the time moves to the next deadline by itself.
    case automatic
    /// The time moves only in ``VirtualTime/advance(by:)``, and only as far as that call says.
    case manual
  }

  /// The order in which a virtual time runs tasks that are ready at the same time.
  @nonexhaustive
  public enum Order: Sendable, Hashable {
    /// Tasks run in the order in which they became ready.
    ///
    /// Tasks that sleep until the same instant wake one after another. Everything that a woken task
    /// starts runs before the next task wakes.
    case inOrder
    /// Tasks run in a random order, and tasks that sleep until the same instant wake together.
    ///
    /// The same seed always gives the same order; different seeds give different orders.
    case shuffled(seed: UInt64)
  }
}

extension VirtualTime {
  /// Runs `body` in this virtual time until it ends, and then closes the virtual time.
  @concurrent
  func run<Success: Sendable>(
    mayBeginOnMainActor: Bool,
    lastResort: sending VirtualTimeDriver.LastResort,
    _ body: @escaping @Sendable (VirtualTime) async throws -> Success
  ) async throws -> Success {
    let task = Task(executorPreference: jobs) { [jobs] in
      defer { jobs.recordBodyEnd() }
      return try await VirtualTime.$current.withValue(self) {
        try await RealWork.observed(by: jobs) { try await body(self) }
      }
    }
    let ending = await withTaskCancellationHandler {
      var driver = VirtualTimeDriver(
        time: self,
        mayBeginOnMainActor: mayBeginOnMainActor,
        lastResort: lastResort
      ) { task.cancel() }
      return await driver.drive()
    } onCancel: {
      task.cancel()
    }
    let outsideUseError = jobs.state.withLock { $0.outsideUseError }
    let leftovers = close()
    switch ending {
    case .ended:
      let success = try await task.value
      if let error = outsideUseError ?? leftovers { throw error }
      return success
    case .stuck(let error), .abandoned(let error): throw outsideUseError ?? error
    case .reported: return try await task.value
    }
  }
}

extension VirtualTime {
  /// The step to take when no job can run.
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

  /// Whether a call of ``advance(to:)`` is in progress.
  var isAdvancing: Bool { jobs.state.withLock { $0.advances.firstDeadline != nil } }

  /// Whether code outside of the virtual time has used it without being wrapped as real work.
  ///
  /// The code has slept on the virtual time's clock, or has made one of the virtual time's tasks
  /// ready.
  var isUsedFromOutside: Bool {
    jobs.state.withLock { $0.hasCallsFromOutside }
      || clock.state.withLock { $0.hasSleepsFromOutside }
  }

  /// Describes what tasks of queues wait for, with the reasons why a wait may never end.
  func describeKnownWaits() async -> [String] {
    var texts: [String] = []
    for wait in jobs.state.withLock({ $0.waits.all }) { texts.append(await wait.describe(clock)) }
    return texts
  }

  /// Runs `wake`, then jobs until none remain, and returns the number of jobs.
  ///
  /// The method returns early if the caller is cancelled and the body has ended. Otherwise a task
  /// that loops over `Task.yield()` would keep the method running forever.
  @discardableResult func runJobs(wake: () -> Void = {}) -> Int {
    clock.state.withLock { $0.drivingThread = .current }
    defer { clock.state.withLock { $0.drivingThread = nil } }
    return jobs.run(wake: wake) { Task.isCancelled && jobs.bodyHasEnded }
  }

  /// Moves the time to the first deadline, and wakes the first task that sleeps until then.
  ///
  /// If the order is shuffled, the method wakes all tasks that sleep until then.
  func wakeSleepers() {
    guard let deadline = clock.nextDeadline else { return }
    switch order {
    case .inOrder: _ = clock.wakeFirstSleeper(through: deadline)
    case .shuffled: clock.advance(to: deadline)
    }
  }

  /// Moves the time to the target of the first ``advance(to:)`` in progress, and ends that call.
  func endAdvance() {
    guard let (target, advance) = jobs.state.withLock({ $0.popAdvance() }) else { return }
    clock.advance(to: target)
    advance.resume()
  }

  /// Closes the virtual time, and returns an error if tasks still sleep.
  ///
  /// The remaining sleeps end as if they were cancelled, and the remaining jobs run on the global
  /// pool, so that every task that can end does.
  func close() -> VirtualTimeError? {
    let error = VirtualTimeError.sleepersLeft(self)
    jobs.close()
    clock.cancelSleeps()
    return error
  }
}

extension VirtualClock {
  /// Suspends for a duration of this clock, like ``sleep(until:tolerance:)``.
  ///
  /// A task that was started with `Task { }` inside a ``VirtualTime`` belongs to the virtual time
  /// but does not run on its thread. In such a task, this method throws at once: otherwise chance
  /// would decide whether the time moves before or after the sleep starts. Tasks on the main actor
  /// may sleep, because the virtual time waits for them.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it already is; a
  ///   ``VirtualTimeError`` with the code ``VirtualTimeError/Code/sleepOutside`` in a task that
  ///   does not run on its virtual time. The virtual time then ends with that error, too.
  public func sleep(for duration: Duration, tolerance: Duration? = nil) async throws {
    if let time = VirtualTime.current, time.clock === self, !Self.isMainActor(#isolation),
      time.jobs.state.withLock({ $0.isOutside(.current) })
    {
      let error = VirtualTimeError.sleepOutside(time)
      time.jobs.state.withLock { $0.recordOutsideUse(error) }
      throw error
    }
    try await sleep(until: now.advanced(by: duration), tolerance: tolerance)
  }

  // Swift 6.3.1 generates invalid code for the comparison if it is inlined into an async function.
  @inline(never)
  private static func isMainActor(_ isolation: (any Actor)?) -> Bool {
    isolation === MainActor.shared
  }
}

/// The limit on how far a virtual time may move by itself before the test fails.
struct VirtualTimeLimit {
  let duration: Duration
  /// The number of moves that are still allowed beyond the duration, each of any length.
  private var movesLeft: Int
  /// The total time of the moves that tests requested with ``VirtualTime/advance(to:)``.
  private var excluded = Duration.zero

  /// Makes a limit with this duration, or with ten years and 1,000 moves beyond them if it is
  /// `nil`.
  init(_ duration: Duration?) {
    // Ten years have at most 3,653 days.
    self.duration = duration ?? .seconds(86_400 * 3_660)
    movesLeft = duration == nil ? 1_000 : 0
  }

  /// Excludes from the limit a duration by which ``VirtualTime/advance(to:)`` has moved the time.
  mutating func exclude(_ duration: Duration) { excluded += duration }

  /// Counts a move of the time to this instant; returns false if the limit does not allow it.
  mutating func countMove(to instant: VirtualClock.Instant) -> Bool {
    guard instant.offset - excluded > duration else { return true }
    movesLeft -= 1
    return movesLeft >= 0
  }
}
