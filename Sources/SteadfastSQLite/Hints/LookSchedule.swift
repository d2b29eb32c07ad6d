#if SQLite
/// Decides when to look whether another connection has changed the database.
///
/// The file tells that something is written to it before that is committed: the flush comes between
/// the two, which may take long. So a look follows at once, and others at intervals that double,
/// until they are as long as those without a sign. Times are durations since any one start.
struct LookSchedule: Equatable {
  /// The shortest interval between two looks.
  static let shortest = Duration.milliseconds(1)

  /// The interval between looks without a sign of the file.
  var longest: Duration
  /// The interval after the next look.
  private var interval: Duration
  private var lastLook: Duration
  /// When to look.
  private(set) var nextLook: Duration

  /// Makes the schedule of a thread that looks for the first time now.
  init(longest: Duration, now: Duration) {
    self.longest = longest
    interval = longest
    lastLook = now - Self.shortest
    nextLook = now
  }

  /// Whether a sign of the file would bring the next look forward.
  var awaitsFile: Bool { nextLook > lastLook + Self.shortest }

  /// Whether the file has given no sign for long.
  var isSlow: Bool { interval >= longest }

  /// Notes that something was written to the file.
  mutating func fileChanged(at now: Duration) {
    interval = Self.shortest
    nextLook = min(nextLook, max(now, lastLook + Self.shortest))
  }

  /// Notes that the look was made.
  mutating func looked(at now: Duration) {
    lastLook = now
    nextLook = now + interval
    interval = min(interval * 2, longest)
  }
}
#endif
