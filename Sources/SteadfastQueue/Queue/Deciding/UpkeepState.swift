import Synchronization
import SystemFoundation

/// The state of a queue's upkeep, which decides what is due and when.
struct UpkeepState: Sendable {
  /// Decides when to remove ended tasks.
  var pruning: PruningSchedule
  /// Detects that the clock was set back.
  var dates = ClockStepDetector()
  /// Decides when to look for tasks without a handler.
  var warning = MissingHandlerWarning()
  /// Stores which conditions hold.
  var conditions = ConditionState()
  /// When the occurrences of schedules were last checked.
  var schedulesDate: Date?
  /// The budget of the current run, if it has one.
  var budget: RunBudget?
  /// Whether a call that failed may have stored its change.
  var isInDoubt = false

  init(_ configuration: TaskQueueConfiguration) { pruning = PruningSchedule(configuration) }
}

/// Detects from successive dates that the system's clock was set back.
struct ClockStepDetector: Sendable {
  /// The maximum difference, in seconds, between dates that workers read at the same time.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether no date was checked yet.
  var isUnused: Bool { latest == nil }

  /// Returns whether dates in the store may lie in the future.
  ///
  /// They may if `now` is before the date of the last call, or before `read`, which the queue has
  /// read since. They also may on the first call, because the clock of the previous process is
  /// unknown.
  mutating func detectStepBack(to now: Date, lastRead read: Date = .distantPast) -> Bool {
    guard let last = latest else {
      latest = now
      return true
    }
    let latest = max(last, read)
    guard now < latest - Self.tolerance else {
      self.latest = max(latest, now)
      return false
    }
    self.latest = now
    return true
  }

  /// Makes the next call count as the first one.
  ///
  /// This is for when the reaction to the last call failed, or the store has dates in the future
  /// again.
  mutating func reset() { latest = nil }
}

/// The latest date that a queue has read from its clock, with a precision of a second.
///
/// A date that is later by less than a second is not stored, so that callers on all cores rarely
/// write.
final class LatestDate: Sendable {
  private static let resolution = 1.0

  /// In seconds since 2001.
  private let latest = Atomic(-Double.infinity)

  var value: Date { Date(timeIntervalSinceReferenceDate: latest.load(ordering: .relaxed)) }

  func update(with date: Date) {
    let seconds = date.timeIntervalSinceReferenceDate
    guard seconds > latest.load(ordering: .relaxed) + Self.resolution else { return }
    latest.store(seconds, ordering: .relaxed)
  }

  /// Forgets later dates, because the clock was set back to this one.
  func reset(to date: Date) {
    latest.store(date.timeIntervalSinceReferenceDate, ordering: .relaxed)
  }
}

/// Decides when retained tasks are pruned.
///
/// They are pruned when a run begins, and each time at least 256 more have ended.
struct PruningSchedule: Sendable {
  private static let interval = 256

  private let retentions: [(state: TaskState, retention: Retention)]
  private var endedCount = 0

  init(_ configuration: TaskQueueConfiguration) {
    retentions = [
      (.succeeded, configuration.succeededRetention),
      (.abandoned, configuration.abandonedRetention),
      (.cancelled, configuration.cancelledRetention),
    ].filter { $0.1.maxCount != nil || $0.1.maxAge != nil }
  }

  /// Returns what to prune when a run begins.
  ///
  /// This includes tasks that an earlier configuration retained, and this one does not.
  func changes(now: Date) -> [TaskChange] { changes(retentions, now: now) }

  private func changes(
    _ retentions: [(state: TaskState, retention: Retention)],
    now: Date
  ) -> [TaskChange] {
    retentions.map { state, retention in
      .prune(
        state,
        endedBefore: retention.maxAge.map { (now - max(0, $0 / .seconds(1))).storable },
        keepingLatest: retention.maxCount,
        now: now
      )
    }
  }

  /// Returns what to prune after these tasks have ended.
  mutating func changes(
    after settlements: some Collection<Settlement>,
    now: @autoclosure () -> Date
  ) -> [TaskChange] {
    endedCount += settlements.count { $0.isKeptEnd }
    guard endedCount >= Self.interval else { return [] }
    endedCount = 0
    // Tasks that have succeeded may be retained for their unique keys alone.
    return changes(retentions.filter { $0.retention.retains || $0.state == .succeeded }, now: now())
  }
}

/// The conditions that hold as far as a queue knows, and the monitors that report them.
struct ConditionState: Sendable {
  /// A monitor that reports a condition during each run.
  struct Registration: Sendable {
    let number: Int
    let condition: TaskCondition
    let monitor: any ConditionMonitor
    /// Whether attempts are cut short when the condition no longer holds.
    let interruptsTasks: Bool
  }

  private(set) var holding: Set<TaskCondition> = []
  /// The conditions that were set or reported once, and those that have a monitor.
  private(set) var known: Set<TaskCondition> = []
  /// The conditions that were reported as unknown.
  private(set) var reported: Set<TaskCondition> = []
  private var registrations: [TaskCondition: Registration] = [:]
  private var lastNumber = 0
  /// The numbers of the monitors that have not reported yet in this run.
  private var awaited: Set<Int> = []

  /// Sets whether a condition holds.
  ///
  /// - Returns: Whether that is a change.
  mutating func set(_ condition: TaskCondition, holds: Bool) -> Bool {
    known.insert(condition)
    return holds
      ? holding.insert(condition).inserted : holding.remove(condition) != nil
  }

  // MARK: Monitors

  mutating func register(
    _ monitor: any ConditionMonitor,
    _ condition: TaskCondition,
    interruptsTasks: Bool
  ) {
    lastNumber += 1
    known.insert(condition)
    // A run that starts waits for the new monitor instead of the one that it replaces.
    if let old = registrations[condition], awaited.remove(old.number) != nil {
      awaited.insert(lastNumber)
    }
    registrations[condition] = Registration(
      number: lastNumber,
      condition: condition,
      monitor: monitor,
      interruptsTasks: interruptsTasks
    )
  }

  /// Returns the monitors that were registered after the one with this number, in order.
  func registrations(after number: Int) -> [Registration] {
    registrations.values.filter { $0.number > number }.sorted { $0.number < $1.number }
  }

  /// Returns whether no other monitor has replaced this one.
  func isCurrent(_ registration: Registration) -> Bool {
    registrations[registration.condition]?.number == registration.number
  }

  /// Starts a run, which waits until each monitor has reported its condition once.
  mutating func beginRun() { awaited = Set(registrations.values.map(\.number)) }

  /// Whether a monitor has not reported yet in this run.
  var awaitsMonitors: Bool { !awaited.isEmpty }

  /// Records that a monitor has reported its condition, or has ended.
  mutating func markReported(_ registration: Registration) { awaited.remove(registration.number) }

  // MARK: Reports

  /// Returns the conditions whose state is unknown.
  func unknown(in conditions: Set<TaskCondition>) -> Set<TaskCondition> {
    conditions.subtracting(known)
  }

  /// Returns whether one of the conditions is unknown, and has not been reported.
  func hasUnreported(in conditions: Set<TaskCondition>) -> Bool {
    !unknown(in: conditions).isSubset(of: reported)
  }

  /// Returns, in order, the conditions that have not been reported before, and marks them as
  /// reported.
  mutating func takeUnreported(of conditions: Set<TaskCondition>) -> [TaskCondition] {
    conditions.sorted().filter { reported.insert($0).inserted }
  }
}

/// Decides when to look for tasks without a handler, and which names to report.
///
/// A look costs two calls to the store: one for names, one for conditions. It is due when the first
/// run begins, and after a task without a handler, or with an unknown condition, was added, resumed
/// or restarted. A queue whose tasks all have handlers and known conditions never looks again.
struct MissingHandlerWarning: Sendable {
  /// The names that were reported.
  private(set) var reportedNames: Set<String> = []
  private var hasRun = false
  /// Whether a look is due.
  private var isDue = false

  /// Returns whether this is the first call; after that, no look is due.
  mutating func takeFirstRun() -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    isDue = false
    return true
  }

  /// Makes a look due for a waiting task of this name, which has no handler.
  mutating func makeCheckDue(forName name: String) {
    if !reportedNames.contains(name) { makeCheckDue() }
  }

  /// Makes a look due, because a task waits for something that was not reported.
  mutating func makeCheckDue() { isDue = true }

  /// Returns whether to look now, after a worker found nothing to do.
  ///
  /// The look then counts as made.
  mutating func takeDueCheck() -> Bool {
    defer { isDue = false }
    return isDue
  }

  /// Marks names of tasks that wait for handlers as reported.
  ///
  /// - Returns: The names that have not been reported before.
  mutating func takeUnreportedNames(of names: [String]) -> [String] {
    names.filter { reportedNames.insert($0).inserted }
  }
}
