#if PostgreSQL
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Where the claims of one queue begin to read, in a table with many rows of tasks that are gone.
///
/// The server keeps such rows, and their entries in indexes, until no transaction can see them and
/// the table is vacuumed. They stand before the tasks that wait, so a claim that reads from the
/// first entry on reads all of them. One that reads from where earlier claims have come to reads
/// almost none.
///
/// A task may become available before that place. What the same store changes, it notes
/// (``DeletedRows``). What others change is found by a look at the first entries. The next look
/// comes after a second, or ten times the time that the last one took if that is longer; if there
/// is something to be found, after the time that the last one took.
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

  /// A place in a lane.
  struct Place: Comparable, Sendable {
    let date: Date
    let position: Int

    static func < (left: Place, right: Place) -> Bool {
      (left.date, left.position) < (right.date, right.position)
    }
  }

  /// Where a claim begins in each lane.
  typealias Places = [Lane: Place]

  /// How far claims have come in a lane: now, the lag ago or longer, and twice the lag ago.
  private struct Progress {
    private(set) var start: Place
    private var earlier: Place
    private var reached: Place

    init(_ place: Place) { (start, earlier, reached) = (place, place, place) }

    /// Notes that nothing is available before a place.
    mutating func reach(_ place: Place) {
      lower(to: place)
      reached = place
    }

    /// Notes that something may be available from a place on.
    mutating func lower(to place: Place) {
      (start, earlier, reached) = (min(start, place), min(earlier, place), min(reached, place))
    }

    mutating func move() { (start, earlier) = (earlier, reached) }
  }

  /// How many lanes without tasks are known at most.
  private static let mostEmptyLanes = 1_000

  /// Whether a look is made at once if there is something to be found.
  private let isExact: Bool
  private var lanes: [Lane: Progress] = [:]
  /// The conditions that were met in all claims since the last look; `nil` if there was none.
  private var conditions: Set<TaskCondition>?
  private var isBehind = false
  private var lastMove = ContinuousClock.now
  private var lastLook = ContinuousClock.now
  private var lookTime = Duration.zero

  /// Makes a value that knows no lanes.
  ///
  /// - Parameter isExact: Whether each claim takes what comes first of all that this store has
  ///   changed, whatever the looks cost.
  init(isExact: Bool = false) {
    self.isExact = isExact
  }

  /// How long a task of another store may take into the table after it has got its date.
  private var lag: Duration { isExact ? .zero : .milliseconds(100) }

  /// Where a claim begins in each lane; `nil` if their first entries must be looked at before.
  mutating func places(
    for request: ClaimRequest,
    after freed: DeletedRows,
    at now: ContinuousClock.Instant
  ) -> Places? {
    isBehind = isBehind || freed.areAnywhere
    // A task that was passed over for a condition may be behind when the condition is met again.
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
      for lane in lanes.keys { lanes[lane]?.move() }
      lastMove = now
    }
    return lanes.mapValues(\.start)
  }

  /// Notes the first entry of each lane that has one, as a look has found them.
  ///
  /// - Returns: Where the claim begins in each lane.
  mutating func note(
    _ firsts: Places,
    for request: ClaimRequest,
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Places {
    // A task that is added to a lane without tasks that are available comes no earlier.
    let latest = Place(date: request.now - lag / .seconds(1), position: .min)
    let empty = lanes.keys.filter { firsts[$0] == nil }.prefix(Self.mostEmptyLanes)
    lanes = firsts.mapValues { Progress(min($0, latest)) }
    for lane in empty { lanes[lane] = Progress(latest) }
    (conditions, isBehind) = (request.conditions, false)
    (lastMove, lastLook, lookTime) = (now, now, start.duration(to: now))
    return lanes.mapValues(\.start)
  }

  /// Notes that a look was given up because it took too long.
  ///
  /// The next one comes as late as after one that has taken as long.
  ///
  /// - Returns: Where the claim begins in each lane; `nil` if there was no look that found them.
  mutating func noteFailedLook(
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Places? {
    (lastLook, lookTime) = (now, start.duration(to: now))
    return conditions == nil ? nil : lanes.mapValues(\.start)
  }

  /// Notes that a claim has taken all available tasks of a lane up to a place.
  mutating func note(_ lane: Lane, upTo place: Place) { lanes[lane]?.reach(place) }

  /// How long it takes until tasks are found that other stores have made available.
  func timeToLook(at now: ContinuousClock.Instant) -> Duration {
    let shortest = Duration.seconds(isExact ? 0 : 1)
    let pause =
      if isBehind { isExact ? .zero : lookTime } else { max(lookTime * 10, shortest) }
    return max(.zero, pause - lastLook.duration(to: now))
  }
}

/// Tasks of a queue that the changes of a store may have made available.
struct DeletedRows: Sendable {
  /// The earliest date of new tasks in each lane.
  var dates: [ClaimCursors.Lane: Date] = [:]
  /// The earliest date of tasks of any lane.
  var earliest: Date?
  /// Whether there may be others, anywhere.
  var areAnywhere = false
}
#endif
