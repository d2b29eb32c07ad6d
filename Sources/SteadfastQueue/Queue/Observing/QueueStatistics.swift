public import SystemFoundation

/// The number of tasks in a queue's store, and what the queue has done since it was made.
///
/// What the queue has done is not stored: each ``TaskQueue`` counts from zero. The numbers of
/// ``total`` are also properties of this value, such as `statistics.succeeded`.
@dynamicMemberLookup
public struct QueueStatistics: Sendable, Hashable {
  /// The number of tasks in the store, by state; a state without tasks is not listed.
  public internal(set) var counts: [TaskState: Int] = [:]
  /// When the queue was made.
  public let since: Date
  /// What the queue has done with all tasks.
  public let total: TaskStatistics
  /// What the queue has done with the tasks of each name.
  ///
  /// A name is listed if the queue has attempted or abandoned any of its tasks. After 1,000 names,
  /// all further ones are counted together, under an empty name.
  public let byName: [String: TaskStatistics]
  /// How often a rate limit was used up or paused.
  ///
  /// This is counted when the queue looks for tasks, and only once for each date at which tasks may
  /// start again.
  public internal(set) var rateLimited = 0
  /// How many calls to the store were repeated after a transient error.
  public internal(set) var storeRetries = 0
  /// How many tasks have succeeded per second, on average since the queue was made.
  public internal(set) var throughput = 0.0

  /// Returns a number of ``total``.
  public subscript<Value>(dynamicMember number: KeyPath<TaskStatistics, Value>) -> Value {
    total[keyPath: number]
  }

  /// The counts that the queue updates while it works.
  struct Tally: Sendable {
    let since: Date
    private var byName: [String: TaskStatistics] = [:]

    init(since date: Date) { since = date }

    mutating func countAttempt(of name: String, afterWaiting waiting: Duration) {
      byName[key(of: name), default: TaskStatistics()].countAttempt(afterWaiting: waiting)
    }

    mutating func addRunTime(_ time: Duration, of name: String) {
      byName[key(of: name), default: TaskStatistics()].runTime.add(time)
    }

    mutating func count(_ change: TaskChange, of name: String) {
      // Only these are counted. Callers can end and move tasks that the queue has never attempted.
      switch change {
      case .end, .move: byName[key(of: name), default: TaskStatistics()].count(change)
      default: break
      }
    }

    private func key(of name: String) -> String {
      byName.count < 1_000 || byName[name] != nil ? name : ""
    }

    /// The number of attempts that have begun, plus the number of abandoned tasks.
    var workCount: Int { byName.values.reduce(0) { $0 + $1.attempts + $1.abandoned } }

    var statistics: QueueStatistics {
      QueueStatistics(
        since: since,
        total: byName.values.reduce(into: TaskStatistics()) { $0.add($1) },
        byName: byName.filter { $1.attempts + $1.abandoned > 0 }
      )
    }
  }
}

/// What a queue has done with tasks.
public struct TaskStatistics: Sendable, Hashable {
  /// How many attempts have begun.
  public private(set) var attempts = 0
  /// How many attempts have ended in success.
  public private(set) var succeeded = 0
  /// How many attempts have failed and are retried.
  public private(set) var failed = 0
  /// How many tasks were abandoned.
  public private(set) var abandoned = 0
  /// How many attempts ended in a snooze.
  public private(set) var snoozed = 0
  /// How long available tasks waited until an attempt began.
  public private(set) var waitTime = DurationHistogram()
  /// How long attempts took, including ``TaskMiddleware``.
  public fileprivate(set) var runTime = DurationHistogram()

  fileprivate mutating func countAttempt(afterWaiting waiting: Duration) {
    attempts += 1
    waitTime.add(waiting)
  }

  fileprivate mutating func count(_ change: TaskChange) {
    switch change {
    case .end(_, let end) where end.state == .succeeded: succeeded += 1
    case .end(_, let end) where end.state == .abandoned: abandoned += 1
    case .move(_, let move) where move.kind == .retry:
      if move.failure != nil { failed += 1 } else { snoozed += 1 }
    default: break
    }
  }

  fileprivate mutating func add(_ other: TaskStatistics) {
    attempts += other.attempts
    succeeded += other.succeeded
    failed += other.failed
    abandoned += other.abandoned
    snoozed += other.snoozed
    waitTime.add(other.waitTime)
    runTime.add(other.runTime)
  }
}

/// The number, the sum, the maximum and the distribution of durations.
public struct DurationHistogram: Sendable, Hashable {
  /// The number of durations.
  public private(set) var count = 0
  /// The sum of the durations.
  public private(set) var total = Duration.zero
  /// The longest duration.
  public private(set) var longest = Duration.zero
  /// The number of durations in each interval, up to the longest one.
  ///
  /// The first interval ends at a microsecond. The end of each of the others is the fourth root of
  /// 2 times its start.
  private var intervals: [Int] = []

  /// The mean of the durations; zero if there are none.
  public var mean: Duration { count == 0 ? .zero : total / count }

  /// Returns the duration that the given part of all durations does not exceed, such as the median
  /// for 0.5.
  ///
  /// Durations are counted in intervals, each about 19 % wide, and this returns the geometric mean
  /// of an interval's ends. So for durations of at least a microsecond, it differs from the exact
  /// one by at most a factor of 1.091, the eighth root of 2.
  ///
  /// - Parameter part: from 0 to 1; a number outside counts as the nearest of them.
  /// - Returns: a duration; zero if there are none.
  public func percentile(_ part: Double) -> Duration {
    let part = part > 0 ? min(part, 1) : 0
    var left = max(1, Int((part * Double(count)).rounded(.up)))
    for (number, count) in intervals.enumerated() {
      left -= count
      if left <= 0 { return min(Self.middle(ofInterval: number), longest) }
    }
    return longest
  }

  mutating func add(_ time: Duration) {
    count += 1
    total += time
    longest = max(longest, time)
    let interval = Self.interval(of: time)
    if interval >= intervals.count {
      intervals += repeatElement(0, count: interval + 1 - intervals.count)
    }
    intervals[interval] += 1
  }

  fileprivate mutating func add(_ other: DurationHistogram) {
    count += other.count
    total += other.total
    longest = max(longest, other.longest)
    if intervals.count < other.intervals.count {
      intervals += repeatElement(0, count: other.intervals.count - intervals.count)
    }
    for (number, count) in other.intervals.enumerated() { intervals[number] += count }
  }

  /// The powers of 2 with the exponents 1/4, 2/4 and 3/4.
  private static let quarters = (
    1.189_207_115_002_721, 1.414_213_562_373_095, 1.681_792_830_507_429
  )

  private static func interval(of time: Duration) -> Int {
    let microseconds = time / .microseconds(1)
    guard microseconds >= 1 else { return 0 }
    let significand = microseconds.significand
    let quarter =
      if significand < quarters.1 {
        significand < quarters.0 ? 0 : 1
      } else {
        significand < quarters.2 ? 2 : 3
      }
    return 1 + 4 * Int(microseconds.exponent) + quarter
  }

  /// The geometric mean of the ends of an interval; half a microsecond for the first one.
  private static func middle(ofInterval number: Int) -> Duration {
    guard number > 0 else { return .microseconds(0.5) }
    let (exponent, quarter) = (number - 1).quotientAndRemainder(dividingBy: 4)
    let start = [1, quarters.0, quarters.1, quarters.2][quarter]
    let half = 1.090_507_732_665_257_7
    return .microseconds(Double(sign: .plus, exponent: exponent, significand: start * half))
  }
}

extension QueueStatistics: CustomStringConvertible {
  /// The numbers in one line, such as `2 waiting, 1 running; 10 attempts: 8 succeeded, …`.
  public var description: String {
    let states = TaskState.allCases.compactMap { state in
      counts[state].map { "\($0) \(state)" }
    }
    let held = states.isEmpty ? "no tasks" : states.joined(separator: ", ")
    return "\(held); \(total)"
  }
}

extension TaskStatistics: CustomStringConvertible {
  /// The numbers in one line, such as `10 attempts: 8 succeeded, …`.
  public var description: String {
    "\(attempts) attempts: \(succeeded) succeeded, \(failed) failed, "
      + "\(abandoned) abandoned, \(snoozed) snoozed; waited \(waitTime), ran \(runTime)"
  }
}

extension DurationHistogram: CustomStringConvertible {
  /// The mean and the longest duration, in seconds or milliseconds.
  public var description: String {
    "\(Self.text(mean)) on average, \(Self.text(longest)) at most"
  }

  private static func text(_ time: Duration) -> String {
    let seconds = time / .seconds(1)
    guard seconds < 1 else { return "\((seconds * 1e3).rounded() / 1e3) s" }
    return "\((seconds * 1e6).rounded() / 1e3) ms"
  }
}
