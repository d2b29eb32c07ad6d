import Synchronization

/// The one timer of a system clock: all sleeps and time limits on that clock wait here.
///
/// The runtime keeps a cancelled sleep, with its task, until the time at which it would have ended.
/// Most operations end long before their limits, and each would leave such a sleep behind. Here,
/// nothing is left of a waiter once it is removed. Only the timer itself sleeps, and none of its
/// sleeps is cut short.
final class SharedTimer: Sendable {
  typealias Ticket = TimerSchedule<Waiter>.Ticket

  /// What the timer resumes when a moment has come.
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

  /// Makes a timer that sleeps on `clock`, in tasks that prefer `executor`.
  init<C: Clock>(_ clock: C, executor: (any TaskExecutor)? = nil) where C.Duration == Duration {
    let beginning = clock.now
    now = { beginning.duration(to: clock.now) }
    sleep = { end in
      // Nothing cancels this sleep. Any other error only makes it end early.
      try? await clock.sleep(until: beginning.advanced(by: end), tolerance: nil)
    }
    self.executor = executor
  }

  /// Returns the timer of a system clock; nil for any other clock, on which callers sleep directly.
  static func of<C: Clock>(_ clock: C) -> SharedTimer? {
    if C.self == ContinuousClock.self { return continuous }
    if C.self == SuspendingClock.self { return suspending }
    return nil
  }

  /// The number of waiters.
  var count: Int { schedule.withLock { $0.count } }

  /// The number of sleeps that are under way.
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

  /// Removes a waiter, and returns it; nil if it was resumed before.
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

  /// Sleeps for all waiters, in a detached task, for as long as this sleep is needed.
  private func beginSleep(until first: Duration) {
    // Detached: it serves all waiters, so it must outlive each of them, and inherit from none.
    Task.detached(executorPreference: executor, priority: .high) { [self] in
      var end = first
      while true {
        await sleep(end)
        let (due, next) = schedule.withLock { $0.endSleep(end, now: now()) }
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
