#if PostgreSQL
import SteadfastQueue
import SystemFoundation

/// The cursors from which the claims of one queue read while an index begins with many entries that
/// a claim must skip: those of dead rows, or of tasks whose names have no room.
///
/// The server keeps the rows of removed tasks, and their entries in indexes, until no transaction
/// can see them and the table is vacuumed. In an index, these dead entries come before the entries
/// of the waiting tasks. A claim that reads from the first entry reads all dead entries. A claim
/// that reads from a cursor, which earlier claims have reached, reads almost no dead entries.
///
/// A task may become available before a cursor. The store records the tasks that its own changes
/// make available (``FreedTasks``). The store finds other tasks by a scan, which reads each lane
/// from the first entry. So tasks in a new lane that another store made due are found by the next
/// scan. The next scan follows after a second, or after ten times the duration of
/// the last scan if that is longer. If there may be tasks before a cursor, the next scan follows
/// after the duration of the last scan.
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

  /// A position in a lane, in the order of claiming.
  struct Cursor: Comparable, Sendable {
    let date: Date
    let position: Int

    static func < (left: Cursor, right: Cursor) -> Bool {
      (left.date, left.position) < (right.date, right.position)
    }
  }

  /// The cursor from which a claim reads each lane.
  typealias Cursors = [Lane: Cursor]

  /// The cursors that claims have reached in a lane.
  ///
  /// `reached` is the current cursor, `earlier` was reached at least one ``lag`` ago, and `start`
  /// at least two lags ago. Claims read from `start`.
  private struct Progress {
    private(set) var start: Cursor
    private var earlier: Cursor
    private var reached: Cursor

    init(_ cursor: Cursor) { (start, earlier, reached) = (cursor, cursor, cursor) }

    /// Records that no task before a cursor is available.
    mutating func reach(_ cursor: Cursor) {
      lower(to: cursor)
      reached = cursor
    }

    /// Records that tasks from a cursor on may be available.
    mutating func lower(to cursor: Cursor) {
      (start, earlier, reached) = (min(start, cursor), min(earlier, cursor), min(reached, cursor))
    }

    /// Moves the cursor from which claims read, after a ``lag``.
    mutating func advance() { (start, earlier) = (earlier, reached) }
  }

  /// A date before all others.
  static let earliestDate = Date(timeIntervalSince1970: -.infinity)

  /// The maximum number of known lanes without tasks.
  private static let mostEmptyLanes = 1_000

  /// Whether a scan follows at once if there may be tasks before a cursor.
  private let isExact: Bool
  private var lanes: [Lane: Progress] = [:]
  /// The conditions that were met in all claims since the last scan; `nil` before the first scan.
  private var conditions: Set<TaskCondition>?
  /// The payload versions in the last claim.
  private var versions: [String: Int] = [:]
  private var mayMissTasks = false
  /// The date from which a claim looks for delayed tasks whose dates have passed.
  private(set) var delays = Self.earliestDate
  private var lastMove = ContinuousClock.now
  private var lastScan = ContinuousClock.now
  private var scanDuration = Duration.zero

  /// Creates a value without known lanes.
  ///
  /// - Parameter isExact: Whether each claim gets the first of all tasks that this store made
  ///   available, whatever the scans cost.
  init(isExact: Bool = false) {
    self.isExact = isExact
  }

  /// The longest expected time from another store's choice of a task's date to the commit of that
  /// task.
  private var lag: Duration { isExact ? .zero : .milliseconds(100) }

  /// Returns the cursor from which a claim reads each lane; `nil` if a scan must come first.
  mutating func cursors(
    for request: ClaimRequest,
    freed: FreedTasks,
    at now: ContinuousClock.Instant
  ) -> Cursors? {
    mayMissTasks = mayMissTasks || freed.areAnywhere
    // When a condition is met again, a task that was skipped because of the condition may be before
    // a cursor.
    if conditions?.isSuperset(of: request.conditions) == false { mayMissTasks = true }
    conditions?.formIntersection(request.conditions)
    // After a handler of a newer version was registered, the same is true of a task that was
    // skipped because of its version.
    if versions != request.versions { mayMissTasks = true }
    versions = request.versions
    for (lane, date) in freed.dates {
      let cursor = Cursor(date: date, position: .min)
      lanes[lane, default: Progress(cursor)].lower(to: cursor)
    }
    if let date = freed.earliest {
      for lane in lanes.keys { lanes[lane]?.lower(to: Cursor(date: date, position: .min)) }
    }
    guard conditions != nil, timeUntilScan(at: now) > .zero else { return nil }
    if lastMove.duration(to: now) >= lag {
      for lane in lanes.keys { lanes[lane]?.advance() }
      lastMove = now
    }
    return lanes.mapValues(\.start)
  }

  /// Lets the next claim look for the delayed tasks that a store's own changes made ready.
  mutating func lowerDelays(to freed: FreedTasks) {
    for date in freed.dates.values { delays = min(delays, date) }
    if let date = freed.earliest { delays = min(delays, date) }
  }

  /// Records that no delayed task with a date before the date of a claim is left.
  ///
  /// The clocks of other processes may be a second behind. After the next scan, a claim looks for
  /// all delayed tasks again.
  mutating func recordDelays(before date: Date) { if !isExact { delays = date - 1 } }

  /// Records the result of a scan: the first entry of each lane that has entries.
  ///
  /// - Returns: The cursor from which the claim reads each lane.
  mutating func recordScan(
    _ firsts: Cursors,
    for request: ClaimRequest,
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Cursors {
    // Tasks that are added later to a lane without available tasks come after this cursor.
    let latest = Cursor(date: request.now - lag / .seconds(1), position: .min)
    let empty = lanes.keys.filter { firsts[$0] == nil }.prefix(Self.mostEmptyLanes)
    lanes = firsts.mapValues { Progress(min($0, latest)) }
    for lane in empty { lanes[lane] = Progress(latest) }
    (conditions, mayMissTasks) = (request.conditions, false)
    delays = Self.earliestDate
    (lastMove, lastScan, scanDuration) = (now, now, start.duration(to: now))
    return lanes.mapValues(\.start)
  }

  /// Records that a scan was cancelled because it took too long.
  ///
  /// The next scan is postponed as after a completed scan of the same duration.
  ///
  /// - Returns: The cursor from which the claim reads each lane; `nil` if no scan was completed.
  mutating func recordFailedScan(
    from start: ContinuousClock.Instant,
    to now: ContinuousClock.Instant
  ) -> Cursors? {
    (lastScan, scanDuration) = (now, start.duration(to: now))
    return conditions == nil ? nil : lanes.mapValues(\.start)
  }

  /// Records that a claim got all available tasks of a lane up to a cursor.
  mutating func recordClaim(in lane: Lane, upTo cursor: Cursor) { lanes[lane]?.reach(cursor) }

  /// Returns the time until the next scan.
  func timeUntilScan(at now: ContinuousClock.Instant) -> Duration {
    let shortest = Duration.seconds(isExact ? 0 : 1)
    let pause =
      if mayMissTasks { isExact ? .zero : scanDuration } else { max(scanDuration * 10, shortest) }
    return max(.zero, pause - lastScan.duration(to: now))
  }
}

/// The tasks of a queue that a store's own changes may have made available.
struct FreedTasks: Sendable {
  /// The earliest date of new tasks in each lane.
  var dates: [ClaimCursors.Lane: Date] = [:]
  /// The earliest date of other tasks, which may be in any lane.
  var earliest: Date?
  /// Whether any other tasks may have become available, also before a cursor.
  var areAnywhere = false
}
#endif
