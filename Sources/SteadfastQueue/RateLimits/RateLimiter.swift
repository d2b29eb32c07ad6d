/// A number of starts, and the interval within which no more may be.
struct RateWindow: Sendable, Hashable {
  /// The most starts whose dates are kept.
  static let maxCount = 1_024
  /// The shortest interval, in microseconds.
  static let shortestPart: Int64 = 1_000

  /// From 1 to 1,024.
  let count: Int
  /// In microseconds.
  let interval: Int64

  /// Makes a window of `count` starts per interval.
  ///
  /// For more than 1,024, the interval and the count are divided by the same number. Every interval
  /// of the whole length is covered by as many parts, so it has no more starts than it may.
  init(_ count: Int, per interval: Duration) {
    let count = max(count, 1)
    let parts = (count - 1) / Self.maxCount + 1
    let microseconds = min(max(interval, .zero), RateLimit.longestInterval).microseconds
    self.count = count / parts
    // Rounded up: a part that is too long lets too few through, never too many.
    self.interval = (microseconds + Int64(parts) - 1) / Int64(parts)
  }
}

/// When attempts have begun that share a limit, and until when it is paused; in microseconds since
/// 1970.
struct StartHistory: Sendable, Hashable {
  struct Pause: Sendable, Hashable {
    var begin: Int64
    var end: Int64
  }

  /// In order; of several at the same time, each is listed.
  private(set) var starts: [Int64] = []
  private(set) var pause: Pause?

  init(starts: [Int64] = [], pause: Pause? = nil) {
    self.starts = starts
    self.pause = pause
  }

  var isEmpty: Bool { starts.isEmpty && pause == nil }

  /// Notes that an attempt begins.
  ///
  /// It counts from the last start on if that is later by another process's clock.
  mutating func start(at now: Int64) { starts.append(max(now, starts.last ?? now)) }

  /// Moves the starts from a date on to a later one, on which those attempts begin.
  mutating func delay(from date: Int64, to now: Int64) {
    guard now > date, let last = starts.last, last >= date else { return }
    starts = starts.map { $0 >= date ? max($0, now) : $0 }
  }

  /// Lets nothing begin until a date, or until a later one that was set before.
  mutating func pause(from now: Int64, until end: Int64) {
    guard end > max(now, pause?.end ?? now) else { return }
    pause = Pause(begin: now, end: end)
  }

  /// Drops what has no meaning any more on a date.
  mutating func trim(_ windows: [RateWindow], at now: Int64) {
    if let pause, pause.end <= now { self.pause = nil }
    let (count, interval) = (
      windows.map(\.count).max() ?? 0, windows.map(\.interval).max() ?? 0
    )
    let extra = max(0, starts.count - count)
    let first = starts[extra...].firstIndex { $0 > now - interval } ?? starts.endIndex
    if first > 0 { starts.removeFirst(first) }
  }

  /// Moves what is later than `now`, because the clock was set back, to a date by which it was.
  ///
  /// Nothing is moved if it is later by no more than the tolerance: it comes from the clock of
  /// another process. Without this, a limit would hold tasks up until the clock reaches the old
  /// date.
  mutating func rebase(to date: Int64, at now: Int64, tolerance: Int64) {
    if let last = starts.last, last > now + tolerance {
      starts = starts.map { $0 > now ? date : $0 }.sorted()
    }
    if let pause, pause.begin > now + tolerance {
      self.pause = Pause(begin: date, end: date + (pause.end - pause.begin))
    }
  }
}

/// Decides when attempts may begin that share a limit.
///
/// It keeps the dates of the last starts, as many as the limit allows. That is exact: a bucket of
/// tokens that is filled at the rate of the limit lets nearly twice as many through in the interval
/// after a pause.
struct RateLimiter: Sendable {
  let windows: [RateWindow]
  var history: StartHistory

  /// Returns how many attempts may begin on a date.
  func room(at now: Int64) -> Int {
    if let pause = history.pause, pause.end > now { return 0 }
    var room = Int.max
    for window in windows {
      let begin = now - window.interval
      // Those of the window are the last ones, and there are mostly few of them to look at.
      let first = history.starts.lastIndex { $0 <= begin }.map { $0 + 1 } ?? 0
      room = min(room, max(0, window.count - (history.starts.count - first)))
    }
    return room
  }

  /// Returns how long a number of attempts takes to begin, as the slowest of the windows allows it.
  func duration(ofStarts count: Int) -> Int64 {
    let each = windows.map { Double($0.interval) / Double($0.count) }.max() ?? 0
    return Int64(min(each * Double(count), Double(RateLimit.longestInterval.microseconds)))
  }

  /// Returns the first date, from `now` on, on which an attempt may begin.
  func nextStart(from now: Int64) -> Int64 {
    var date = max(now, history.pause?.end ?? now)
    for window in windows where history.starts.count >= window.count {
      date = max(date, history.starts[history.starts.count - window.count] + window.interval)
    }
    return date
  }
}
