/// The moments that waiters wait for, and the sleeps that are under way for all of them.
///
/// Moments are counted from the timer's beginning. A sleep is never cut short, because the runtime
/// would keep a part of it until its end anyway. A sleep that is no longer needed runs to its end,
/// and later waiters use it. Another sleep begins only for a moment before the ends of all others,
/// and takes at most half of the time until the earliest end. So there are at most a few dozen
/// sleeps, whatever is waited for, and each lasts at most a minute.
struct TimerSchedule<Element> {
  typealias Ticket = DeadlineHeap<Element, Duration>.Ticket

  private static var longestSleep: Duration { .seconds(60) }

  private var waiting = DeadlineHeap<Element, Duration>()
  /// The ends of the sleeps that are under way, the earliest last.
  private var ends: [Duration] = []

  /// The number of waiters.
  var count: Int { waiting.count }

  /// The number of sleeps that are under way.
  var sleepCount: Int { ends.count }

  /// Adds a waiter; also returns the end of the sleep to begin, if another sleep is needed.
  mutating func add(
    _ element: Element,
    until moment: Duration,
    now: Duration
  ) -> (ticket: Ticket, sleep: Duration?) {
    let ticket = waiting.insert(element, deadline: moment)
    guard let earliest = ends.last else { return (ticket, beginSleep(until: moment, now)) }
    guard moment < earliest else { return (ticket, nil) }
    return (ticket, beginSleep(until: min(moment, now + (earliest - now) / 2), now))
  }

  /// Removes a waiter, and returns it; nil if ``endSleep(_:now:)`` has returned it.
  mutating func remove(_ ticket: Ticket) -> Element? { waiting.remove(ticket) }

  /// Notes that the sleep with this end is over, and returns the waiters that are due, in order.
  ///
  /// Also returns the end of the sleep that follows, if one is needed.
  mutating func endSleep(_ end: Duration, now: Duration) -> (due: [Element], sleep: Duration?) {
    ends.lastIndex(of: end).map { _ = ends.remove(at: $0) }
    // A clock may wake a moment too early.
    let now = max(now, end)
    var due: [Element] = []
    while let (_, element) = waiting.popFirst(through: now) { due.append(element) }
    guard let next = waiting.firstDeadline, ends.last.map({ next < $0 }) ?? true
    else { return (due, nil) }
    return (due, beginSleep(until: next, now))
  }

  private mutating func beginSleep(until moment: Duration, _ now: Duration) -> Duration {
    let end = min(moment, now + Self.longestSleep)
    ends.append(end)
    return end
  }
}
