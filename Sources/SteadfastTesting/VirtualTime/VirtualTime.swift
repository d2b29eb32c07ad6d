import SteadfastRetry
import Synchronization

/// A world for one test: its own clock, and one thread on which its tasks take turns in an order
/// that is the same each time.
///
/// ``withVirtualTime(_:order:date:limit:encodesPayloads:_:)`` and the test trait `.virtualTime` make one. Child tasks,
/// `async let`, task groups and default actors stay inside it. The main actor, detached tasks,
/// `Task { }`, actors with executors of their own and system calls do not: the time stands still for
/// them only inside ``withRealWork(_:)``.
public final class VirtualTime: Sendable {
  /// The virtual time in which the current task runs; nil outside of one.
  @TaskLocal public static var current: VirtualTime?

  /// The virtual time in which the current task runs.
  ///
  /// - Throws: a ``VirtualTimeError`` with the code ``VirtualTimeError/Code/missing`` outside of one.
  public static var required: VirtualTime {
    get throws(VirtualTimeError) {
      guard let current else { throw .missing }
      return current
    }
  }

  /// The clock to hand to the code under test.
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

  /// The executor of this world, to start an unstructured task inside of it:
  /// `Task(executorPreference: time.executor) { … }`.
  public var executor: any TaskExecutor { jobs }

  /// Moves the time forward by `duration`; as ``advance(to:)``.
  ///
  /// A negative duration is a programming error.
  public func advance(by duration: Duration) async {
    guard duration >= .zero else {
      preconditionFailure("VirtualTime.advance(by: \(duration)) would move the time backwards")
    }
    await advance(to: clock.now.advanced(by: duration))
  }

  /// Moves the time forward to `instant` and returns when all that is due by then has been done.
  ///
  /// All others run until nothing can, the sleepers due next are woken at their own deadline, and
  /// so on; the caller comes last. An instant in the past lets the others run at the present one.
  /// Real work in flight is waited for. Returns at once, the time as far as it got, when the task is
  /// cancelled.
  public func advance(to instant: VirtualClock.Instant) async {
    // The one error is cancellation, and of that the caller's next step takes care.
    try? await CancellableSuspension.suspend { continuation in
      let (ticket, driver) = jobs.state.withLock { $0.addAdvance(continuation, to: instant) }
      driver?.resume()
      return (ticket, ticket == nil ? [continuation] : [])
    } withdraw: { ticket in
      jobs.state.withLock { $0.removeAdvance(ticket) }
    }
  }

  /// Performs work that takes real time, and holds this virtual time still meanwhile.
  ///
  /// Wrap what happens outside of this world: a request, a file, a process, a detached task. The
  /// work must not sleep on ``clock``, which it holds: that sleep could not end. Works that are in
  /// flight together end in any order; those in `RealWork.performInTurn` take turns, as the stores
  /// of a task queue do by themselves.
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
  /// Who moves the time.
  public enum Mode: Sendable, Hashable {
    /// When nothing else can run, the time moves to the next deadline by itself.
    case automatic
    /// The time moves only in ``VirtualTime/advance(by:)``, and no further than asked for.
    case manual
  }
}

extension VirtualTime {
  /// In what order the tasks of a virtual time run when several can.
  public enum Order: Sendable, Hashable {
    /// As they became able to run; sleepers due at the same instant one after the other, each
    /// followed by all that it sets off.
    case inOrder
    /// As drawn from a seed, and sleepers due at the same instant all at once: other seeds explore
    /// other interleavings, the same seed repeats its own.
    case shuffled(seed: UInt64)
  }
}
