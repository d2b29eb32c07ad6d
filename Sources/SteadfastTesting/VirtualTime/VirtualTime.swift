import SteadfastQueue
import SteadfastRetry
import Synchronization

/// A world for one test, with its own clock and one thread, on which tasks run in a fixed order.
///
/// The tasks take turns on the thread, and their order is the same each time.
/// ``withVirtualTime(_:order:date:limit:encodesPayloads:_:)`` and the test trait `.virtualTime`
/// make a virtual time. Child tasks, `async let`, task groups and default actors stay inside it.
/// The main actor, detached tasks, `Task { }`, actors with executors of their own and system calls
/// run outside. The time stands still for them only inside ``withRealWork(_:)``.
public final class VirtualTime: Sendable {
  /// The virtual time in which the current task runs; nil outside of a virtual time.
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
  /// Use it to start an unstructured task inside: `Task(executorPreference: time.executor) { … }`.
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
  /// All other tasks run until none can. Then the sleepers that are due next are woken at their own
  /// deadline, and so on. The caller goes on last. With an instant in the past, the other tasks run
  /// at the present instant. The method waits for real work in flight. When the task is cancelled,
  /// it returns at once, and the time stays where it is.
  public func advance(to instant: VirtualClock.Instant) async {
    // The only error is a cancellation, which the caller notices at its next step.
    try? await CancellableSuspension.suspend { continuation in
      let (ticket, driver) = jobs.state.withLock { $0.addAdvance(continuation, to: instant) }
      driver?.resume()
      return (ticket, ticket == nil ? [continuation] : [])
    } withdraw: { ticket in
      jobs.state.withLock { $0.removeAdvance(ticket) }
    }
  }

  /// Performs work that takes real time, and holds this virtual time still until it ends.
  ///
  /// Wrap what happens outside of this virtual time: a request, access to a file, a process, a
  /// detached task. The work must not sleep on ``clock``: the clock stands still, so that sleep
  /// could not end. Several pieces of work in flight end in any order. Work in
  /// `RealWork.performInTurn` takes turns; the stores of a task queue use it by themselves.
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
    /// The time moves only in ``VirtualTime/advance(by:)``, and no further than that call asks.
    case manual
  }

  /// The order in which the tasks of a virtual time run when several of them can.
  @nonexhaustive
  public enum Order: Sendable, Hashable {
    /// Tasks run in the order in which they became able to run.
    ///
    /// Sleepers due at the same instant are woken one after another. Everything that one of them
    /// starts runs before the next one is woken.
    case inOrder
    /// Tasks run in an order drawn from a seed, and sleepers due at the same instant wake together.
    ///
    /// Other seeds explore other interleavings; the same seed repeats its own.
    case shuffled(seed: UInt64)
  }
}

extension VirtualTime {
  /// Runs `body` in this virtual time until it has ended, and closes the virtual time.
  @concurrent
  func run<Success: Sendable>(
    mayBeginOnMainActor: Bool,
    lastResort: sending VirtualTimeDriver.LastResort,
    _ body: @escaping @Sendable (VirtualTime) async throws -> Success
  ) async throws -> Success {
    let task = Task(executorPreference: jobs) { [jobs] in
      defer { jobs.endBody() }
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
    let mistake = jobs.state.withLock { $0.mistake }
    let leftovers = close()
    switch ending {
    case .ended:
      let success = try await task.value
      if let error = mistake ?? leftovers { throw error }
      return success
    case .stuck(let error), .abandoned(let error): throw mistake ?? error
    case .reported: return try await task.value
    }
  }
}

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

extension VirtualClock {
  /// Suspends for a duration of this clock, like ``sleep(until:tolerance:)``.
  ///
  /// In a task that belongs to a ``VirtualTime`` but does not run on it, because it was started
  /// with `Task { }`, this method throws at once: it would depend on chance whether the time moves
  /// before or after the sleep begins. Tasks on the main actor may sleep, because the virtual time
  /// waits for them.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it was before; a
  ///   ``VirtualTimeError`` with the code ``VirtualTimeError/Code/sleepOutside`` in a task that
  ///   does not run on its virtual time, which then ends with that error, too.
  public func sleep(for duration: Duration, tolerance: Duration? = nil) async throws {
    if let time = VirtualTime.current, time.clock === self, !Self.isMainActor(#isolation),
      time.jobs.state.withLock({ $0.isLeft(by: .current) })
    {
      let error = VirtualTimeError.sleepOutside(time)
      time.jobs.state.withLock { $0.note(error) }
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

/// How far a virtual time may move by itself before the test fails.
struct VirtualTimeLimit {
  /// How far the time may move.
  let duration: Duration
  /// How often the time may still move further, so that a single sleep may have any length.
  private var stepsLeft: Int
  private var excluded = Duration.zero

  /// Makes a limit.
  ///
  /// A given duration is exact. The default is ten years, and 1,000 steps beyond.
  init(_ duration: Duration?) {
    // A few days longer than any ten years.
    self.duration = duration ?? .seconds(86_400 * 3_660)
    stepsLeft = duration == nil ? 1_000 : 0
  }

  /// Notes that the time has moved because of an advance, and not by itself.
  mutating func exclude(_ advance: Duration) { excluded += advance }

  /// Returns whether the time may move to this instant, and counts a step beyond the duration.
  mutating func allows(_ instant: VirtualClock.Instant) -> Bool {
    guard instant.offset - excluded > duration else { return true }
    stepsLeft -= 1
    return stepsLeft >= 0
  }
}
