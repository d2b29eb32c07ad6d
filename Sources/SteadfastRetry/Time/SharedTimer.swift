import Synchronization

/// The timer of a system clock, which all sleeps and time limits on that clock share.
///
/// When a task that sleeps on a clock is cancelled, the runtime keeps the task in memory until the
/// time at which the sleep would have ended. Most operations end long before their time limits, and
/// each would leave such a task behind. This timer keeps nothing of a waiter that is removed: only
/// the timer itself sleeps on the clock, and its sleeps are never cancelled.
final class SharedTimer: Sendable {
  typealias Ticket = TimerSchedule<Waiter>.Ticket

  /// What happens when a time has passed: a sleep ends, or a time limit is reached.
  enum Waiter: Sendable {
    case sleep(CheckedContinuation<Void, any Error>)
    case limit(TimeoutRace)
  }

  private static let continuous = SharedTimer(ContinuousClock())
  private static let suspending = SharedTimer(SuspendingClock())

  private let now: @Sendable () -> Duration
  private let sleep: @Sendable (_ end: Duration) async -> Void
  private let executor: (any TaskExecutor)?
  private let schedule = Mutex(TimerSchedule<Waiter>())

  /// Makes a timer that sleeps on `clock`, in tasks with `executor` as their preferred executor.
  init<C: Clock>(_ clock: C, executor: (any TaskExecutor)? = nil) where C.Duration == Duration {
    let beginning = clock.now
    now = { beginning.duration(to: clock.now) }
    sleep = { end in
      // This sleep is never cancelled. If it throws another error, it has only ended early.
      try? await clock.sleep(until: beginning.advanced(by: end), tolerance: nil)
    }
    self.executor = executor
  }

  /// Returns the shared timer of a system clock; `nil` for any other clock, on which callers sleep
  /// directly.
  static func of<C: Clock>(_ clock: C) -> SharedTimer? {
    if C.self == ContinuousClock.self { return continuous }
    if C.self == SuspendingClock.self { return suspending }
    return nil
  }

  /// The number of waiters.
  var count: Int { schedule.withLock { $0.count } }

  /// The number of current sleeps.
  var sleepCount: Int { schedule.withLock { $0.sleepCount } }

  /// Adds a waiter that is resumed when `delay` has passed, unless it is removed before.
  func add(_ waiter: Waiter, after delay: Duration) -> Ticket {
    let (ticket, end) = schedule.withLock { schedule in
      let now = now()
      return schedule.add(waiter, until: now + delay, now: now)
    }
    if let end { beginSleep(until: end) }
    return ticket
  }

  /// Removes a waiter, and returns it; returns `nil` if the waiter was already resumed.
  @discardableResult func remove(_ ticket: Ticket) -> Waiter? {
    schedule.withLock { $0.remove(ticket) }
  }

  /// Suspends for the delay.
  /// - Throws: `CancellationError` as soon as the task is cancelled.
  func sleep(for delay: Duration) async throws {
    try Task.checkCancellation()
    guard delay > .zero else { return await Task.yield() }
    try await CancellableSuspension<Ticket>.suspend { continuation in
      (add(.sleep(continuation), after: delay), [])
    } withdraw: { ticket in
      guard case .sleep(let continuation) = remove(ticket) else { return nil }
      return continuation
    }
  }

  /// Sleeps on the clock for all waiters, in a detached task, as long as a sleep is needed.
  private func beginSleep(until first: Duration) {
    // The task serves all waiters, so it must outlive each of them, and inherit nothing from any.
    Task.detached(executorPreference: executor, priority: .high) { [self] in
      var end = first
      while true {
        await sleep(end)
        let (due, next) = schedule.withLock { $0.finishSleep(scheduledFor: end, now: now()) }
        for waiter in due {
          switch waiter {
          case .sleep(let continuation): continuation.resume()
          case .limit(let race): race.end(.timeIsUp)
          }
        }
        guard let next else { return }
        end = next
      }
    }
  }
}

/// Decides when a timer sleeps on its clock, and which waiters it then resumes.
///
/// Moments are durations since the timer was made. A sleep on the clock is never cancelled, because
/// the runtime would keep a part of it until its end anyway. A sleep that is no longer needed
/// continues, and later waiters may use it. A further sleep begins only if a waiter's moment is
/// before the ends of all current sleeps, and the sleep lasts at most half of the time until the
/// earliest of these ends. So there are at most a few dozen sleeps, whatever the moments are. Each
/// sleep lasts at most a minute.
struct TimerSchedule<Element> {
  typealias Ticket = DeadlineHeap<Element, Duration>.Ticket

  private static var longestSleep: Duration { .seconds(60) }

  private var waiting = DeadlineHeap<Element, Duration>()
  /// The moments at which the current sleeps end; the earliest comes last.
  private var ends: [Duration] = []

  /// The number of waiters.
  var count: Int { waiting.count }

  /// The number of current sleeps.
  var sleepCount: Int { ends.count }

  /// Adds a waiter, and returns its ticket and, if a further sleep is needed, the end of that
  /// sleep.
  mutating func add(
    _ element: Element,
    until moment: Duration,
    now: Duration
  ) -> (ticket: Ticket, sleep: Duration?) {
    let ticket = waiting.insert(element, deadline: moment)
    guard let earliest = ends.last else { return (ticket, beginSleep(until: moment, now: now)) }
    guard moment < earliest else { return (ticket, nil) }
    return (ticket, beginSleep(until: min(moment, now + (earliest - now) / 2), now: now))
  }

  /// Removes a waiter, and returns it; returns `nil` if ``finishSleep(scheduledFor:now:)`` has
  /// already returned the waiter.
  mutating func remove(_ ticket: Ticket) -> Element? { waiting.remove(ticket) }

  /// Records that the sleep with this end is over, and returns the waiters to resume, in order.
  ///
  /// The function also returns the end of the sleep that must begin now, if one is needed.
  mutating func finishSleep(
    scheduledFor end: Duration,
    now: Duration
  ) -> (due: [Element], sleep: Duration?) {
    ends.lastIndex(of: end).map { _ = ends.remove(at: $0) }
    // A clock may end a sleep slightly too early.
    let now = max(now, end)
    var due: [Element] = []
    while let (_, element) = waiting.popFirst(through: now) { due.append(element) }
    guard let next = waiting.firstDeadline, ends.last.map({ next < $0 }) ?? true
    else { return (due, nil) }
    return (due, beginSleep(until: next, now: now))
  }

  private mutating func beginSleep(until moment: Duration, now: Duration) -> Duration {
    let end = min(moment, now + Self.longestSleep)
    ends.append(end)
    return end
  }
}

/// Measures the time of a series of attempts on a clock, and sleeps between the attempts.
///
/// The methods that read the clock are never inlined. The size of an instant is known only at run
/// time, and an async function must allocate memory for each temporary value of unknown size. If
/// these methods were inlined, a series of retries would take 1,270 ns instead of 890 ns.
@frozen @usableFromInline struct RetryTimer<C: Clock> where C.Duration == Duration {
  @usableFromInline let clock: C
  @usableFromInline var beginning: C.Instant?

  @inlinable init(_ clock: C) { self.clock = clock }

  /// Starts the timer now, unless it was started before.
  @inlinable @inline(never) mutating func start() { beginning = beginning ?? clock.now }

  /// Returns the time since the timer was started; the first call starts the timer if ``start()``
  /// did not.
  @inlinable @inline(never) mutating func elapsed() -> Duration {
    guard let beginning else {
      beginning = clock.now
      return .zero
    }
    return beginning.duration(to: clock.now)
  }

  /// Suspends for the delay.
  /// - Throws: `CancellationError` as soon as the task is cancelled, even if the clock does not.
  @usableFromInline nonisolated(nonsending) func sleep(for delay: Duration) async throws {
    try await clock.wait(for: delay)
  }

  /// Suspends until `limit` has passed since the timer was started.
  /// - Throws: `CancellationError` as soon as the task is cancelled, even if the clock does not.
  func sleep(untilTimeSinceStart limit: Duration) async throws {
    let end = (beginning ?? clock.now).advanced(by: limit.sleepable)
    try await clock.sleep(until: end, tolerance: nil)
    try Task.checkCancellation()
  }
}

extension Clock where Duration == Swift.Duration {
  /// Suspends for a delay of any length, and leaves nothing behind when the task is cancelled.
  ///
  /// All sleeps of this package for a duration use this method. On a clock other than the system's,
  /// the method sleeps directly on that clock, which decides what a cancelled sleep leaves behind.
  ///
  /// - Throws: `CancellationError` as soon as the task is cancelled, even if the clock does not.
  package nonisolated(nonsending) func wait(for delay: Duration) async throws {
    if let timer = SharedTimer.of(self) {
      try await timer.sleep(for: delay.sleepable)
    } else {
      try await sleep(for: delay.sleepable)
    }
    try Task.checkCancellation()
  }
}

extension Duration {
  /// This duration, limited to a duration for which every clock can sleep.
  ///
  /// Adding a duration to an instant traps if the result overflows, and the runtime counts
  /// nanoseconds in 64 bits. With the limit of 2³² seconds (136 years), neither of them overflows.
  package var sleepable: Duration { min(self, .seconds(Int64(1) << 32)) }
}
