/// Who waits for which moment, and which sleeps are under way for all of them.
///
/// Moments are counted from the timer's beginning. A sleep is never cut short, because what the
/// runtime keeps of it would stay until its end: one that nobody needs any more runs out, and those
/// who come later use it. Only for a moment before all their ends is another one begun, which takes
/// half of the time to the earliest of them at most: so there are a few dozen at the most, whatever
/// is waited for, and each lasts a minute at the most.
struct TimerSchedule<Element> {
  typealias Ticket = DeadlineHeap<Element, Duration>.Ticket

  private static var longestSleep: Duration { .seconds(60) }

  private var waiting = DeadlineHeap<Element, Duration>()
  /// When the sleeps under way end, the earliest last.
  private var ends: [Duration] = []

  /// How many wait.
  var count: Int { waiting.count }

  /// How many sleeps are under way.
  var sleepCount: Int { ends.count }

  /// Adds one that waits; also returns the end of the sleep to begin, if it takes another one.
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

  /// Takes out one that waits; nil if it has been handed over.
  mutating func remove(_ ticket: Ticket) -> Element? { waiting.remove(ticket) }

  /// The sleep with this end is over: hands over those whose moment has come, in order; also
  /// returns the end of the sleep that follows, if it takes one.
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
