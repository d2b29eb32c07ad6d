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
