#if PostgreSQL
import SteadfastQueue
import SystemFoundation

/// The positions from which the claims of one queue read, in a table with many dead rows.
///
/// The server keeps the rows of removed tasks, and their entries in indexes, until no transaction
/// can see them and the table is vacuumed. In an index, these dead entries come before those of the
/// waiting tasks. A claim that reads from the first entry reads all dead entries. A claim that
/// reads from the position that earlier claims reached reads almost none of them.
///
/// A task may become available before that position. The store records the tasks that its own
/// changes make available (``FreedTasks``). It finds other tasks by a look at the first entries.
/// The next look follows after a second, or after ten times the duration of the last look if that
/// is longer. If there may be tasks to find, the next look follows after the duration of the last
/// look.
struct ClaimCursors {
  /// The tasks with one name and one priority.
  struct Lane: Hashable, Sendable {
    let name: ExactText
    /// The inverted priority.
    let rank: Int

    init(name: ExactText, rank: Int) { (self.name, self.rank) = (name, rank) }

    /// The lane of a task.
    init(of record: TaskRecord) {
      self.init(name: ExactText(record.name), rank: ~record.priority.rawValue)
    }
  }

  /// A position in a lane.
  struct Place: Comparable, Sendable {
    let date: Date
    let position: Int

    static func < (left: Place, right: Place) -> Bool {
      (left.date, left.position) < (right.date, right.position)
    }
  }

  /// The position from which a claim reads each lane.
  typealias Places = [Lane: Place]

  /// The positions that claims reached in a lane: `reached` now, `earlier` at least one lag ago,
  /// and `start` at least two lags ago.
  private struct Progress {
    private(set) var start: Place
    private var earlier: Place
    private var reached: Place

    init(_ place: Place) { (start, earlier, reached) = (place, place, place) }

    /// Records that nothing is available before a position.
    mutating func reach(_ place: Place) {
      lower(to: place)
      reached = place
    }

    /// Records that something may be available from a position on.
    mutating func lower(to place: Place) {
      (start, earlier, reached) = (min(start, place), min(earlier, place), min(reached, place))
    }

    /// Moves the position to start from, after a lag.
    mutating func advance() { (start, earlier) = (earlier, reached) }
  }

  /// The maximum number of known lanes without tasks.
  private static let mostEmptyLanes = 1_000

  /// Whether a look follows at once if there may be tasks to find.
  private let isExact: Bool
  private var lanes: [Lane: Progress] = [:]
  /// The conditions that were met in all claims since the last look; `nil` before the first look.
  private var conditions: Set<TaskCondition>?
  private var isBehind = false
  private var lastMove = ContinuousClock.now
  private var lastLook = ContinuousClock.now
  private var lookTime = Duration.zero

  /// Creates a value without known lanes.
  ///
  /// - Parameter isExact: Whether each claim gets the first of all tasks that this store made
  ///   available, whatever the looks cost.
  init(isExact: Bool = false) {
    self.isExact = isExact
  }

  /// The longest expected time from another store's choice of a task's date to the commit of that
  /// task.
  private var lag: Duration { isExact ? .zero : .milliseconds(100) }

  /// Returns the position from which a claim reads each lane; `nil` if a look must come first.
  mutating func places(
    for request: ClaimRequest,
    freed: FreedTasks,
    at now: ContinuousClock.Instant
  ) -> Places? {
    isBehind = isBehind || freed.areAnywhere
    // When a condition is met again, a task that was skipped because of the condition may be before
    // the position.
    if conditions?.isSuperset(of: request.conditions) == false { isBehind = true }
    conditions?.formIntersection(request.conditions)
    for (lane, date) in freed.dates {
      let place = Place(date: date, position: .min)
      lanes[lane, default: Progress(place)].lower(to: place)
    }
    if let date = freed.earliest {
      for lane in lanes.keys { lanes[lane]?.lower(to: Place(date: date, position: .min)) }
    }
    guard conditions != nil, timeToLook(at: now) > .zero else { return nil }
    if lastMove.duration(to: now) >= lag {
      for lane in lanes.keys { lanes[lane]?.advance() }
      lastMove = now
    }
    return lanes.mapValues(\.start)
  }

  /// Records the result of a look: the first entry of each lane that has entries.
  ///
  /// - Returns: The position from which the claim reads each lane.
  mutating func recordLook(
    _ firsts: Places,
    for request: ClaimRequest,
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Places {
    // Tasks that are added later to a lane without available tasks come after this position.
    let latest = Place(date: request.now - lag / .seconds(1), position: .min)
    let empty = lanes.keys.filter { firsts[$0] == nil }.prefix(Self.mostEmptyLanes)
    lanes = firsts.mapValues { Progress(min($0, latest)) }
    for lane in empty { lanes[lane] = Progress(latest) }
    (conditions, isBehind) = (request.conditions, false)
    (lastMove, lastLook, lookTime) = (now, now, start.duration(to: now))
    return lanes.mapValues(\.start)
  }

  /// Records that a look was cancelled because the look took too long.
  ///
  /// The next look is postponed as after a completed look of the same duration.
  ///
  /// - Returns: The position from which the claim reads each lane; `nil` if no look was completed.
  mutating func recordFailedLook(
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Places? {
    (lastLook, lookTime) = (now, start.duration(to: now))
    return conditions == nil ? nil : lanes.mapValues(\.start)
  }

  /// Records that a claim got all available tasks of a lane up to a position.
  mutating func recordClaim(in lane: Lane, upTo place: Place) { lanes[lane]?.reach(place) }

  /// Returns the time until the next look, which finds tasks that other stores made available.
  func timeToLook(at now: ContinuousClock.Instant) -> Duration {
    let shortest = Duration.seconds(isExact ? 0 : 1)
    let pause =
      if isBehind { isExact ? .zero : lookTime } else { max(lookTime * 10, shortest) }
    return max(.zero, pause - lastLook.duration(to: now))
  }
}

/// The tasks of a queue that a store's own changes may have made available.
struct FreedTasks: Sendable {
  /// The earliest date of new tasks in each lane.
  var dates: [ClaimCursors.Lane: Date] = [:]
  /// The earliest date of tasks of any lane.
  var earliest: Date?
  /// Whether other tasks may be available, at any position.
  var areAnywhere = false
}
#endif
