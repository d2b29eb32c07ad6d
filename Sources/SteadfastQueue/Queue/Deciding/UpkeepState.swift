import Synchronization
import SystemFoundation

/// What a queue decides beside its attempts: when to look for what.
struct UpkeepState: Sendable {
  /// Decides when to remove ended tasks.
  var pruning: PruningSchedule
  /// Detects that the clock was set back.
  var dates = ClockStepDetector()
  /// Decides when to look for tasks without a handler.
  var notice = MissingHandlerWarning()
  /// Knows which conditions hold.
  var conditions = ConditionState()
  /// When the occurrences of schedules were last looked for.
  var schedulesDate: Date?
  /// The time of the current run, if it is limited.
  var budget: RunBudget?
  /// Whether a caller's change may be stored, though its call has failed.
  var isInDoubt = false

  init(_ configuration: TaskQueueConfiguration) { pruning = PruningSchedule(configuration) }
}

/// Detects that the system's clock was set back, by the dates that it is given.
struct ClockStepDetector: Sendable {
  /// How many seconds apart dates may be that several workers read at the same time.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether it was given no date yet.
  var isUnused: Bool { latest == nil }

  /// Returns whether dates in the store may lie in the future.
  ///
  /// They may if the date went back since the last call, or from a date that the queue has read in
  /// between. They may also on the first call: it has the first date of this process, and the clock
  /// of the process before it is unknown.
  mutating func wentBack(to now: Date, from read: Date = .distantPast) -> Bool {
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

  /// Makes the next call as the first one.
  ///
  /// What was to follow from the last one has failed, or the store has dates in the future again.
  mutating func forget() { latest = nil }
}

/// The latest date that a queue has read from its clock, to a second.
///
/// A date that is later by less than a second changes nothing, so that callers on all cores may
/// note theirs.
final class LatestDate: Sendable {
  private static let resolution = 1.0

  /// In seconds since 2001.
  private let latest = Atomic(-Double.infinity)

  var value: Date { Date(timeIntervalSinceReferenceDate: latest.load(ordering: .relaxed)) }

  func note(_ date: Date) {
    let seconds = date.timeIntervalSinceReferenceDate
    guard seconds > latest.load(ordering: .relaxed) + Self.resolution else { return }
    latest.store(seconds, ordering: .relaxed)
  }

  /// Forgets later dates, since the clock was set back to this one.
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
  /// This includes tasks that were retained under an earlier configuration, and are not any more.
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

  /// Returns what to prune now that these tasks have ended, too.
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

/// Which conditions hold, as far as a queue was told, and who tells it.
struct ConditionState: Sendable {
  /// A monitor that tells about a condition during each run.
  struct Registration: Sendable {
    let number: Int
    let condition: TaskCondition
    let monitor: any ConditionMonitor
    /// Whether attempts are cut short when the condition ends.
    let interruptsTasks: Bool
  }

  private(set) var holding: Set<TaskCondition> = []
  /// The conditions of which the queue was told whether they hold, and those that have a monitor.
  private(set) var known: Set<TaskCondition> = []
  /// The conditions that were reported because the queue was told nothing about them.
  private(set) var reported: Set<TaskCondition> = []
  private var registrations: [TaskCondition: Registration] = [:]
  private var lastNumber = 0
  /// The monitors that have told nothing yet in this run.
  private var awaited: Set<Int> = []

  /// Notes whether a condition holds.
  ///
  /// - Returns: Whether that is new.
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
    // The run that begins waits for the new one in place of the one that was registered before.
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

  /// Returns whether no other monitor was registered in place of this one.
  func isCurrent(_ registration: Registration) -> Bool {
    registrations[registration.condition]?.number == registration.number
  }

  /// Notes that a run begins, which waits until each monitor has told its condition once.
  mutating func beginRun() { awaited = Set(registrations.values.map(\.number)) }

  /// Whether a monitor has told nothing yet in this run.
  var awaitsMonitors: Bool { !awaited.isEmpty }

  /// Notes that a monitor has told its condition, or tells nothing any more.
  mutating func hasTold(_ registration: Registration) { awaited.remove(registration.number) }

  // MARK: Reports

  /// Returns those of a task's conditions about which the queue was told nothing.
  func unknown(in conditions: Set<TaskCondition>) -> Set<TaskCondition> {
    conditions.subtracting(known)
  }

  /// Returns whether one of the conditions is unknown, and has not been reported.
  func isToReport(_ conditions: Set<TaskCondition>) -> Bool {
    !unknown(in: conditions).isSubset(of: reported)
  }

  /// Returns the conditions that have not been reported before, in order, and notes them.
  mutating func toReport(of conditions: Set<TaskCondition>) -> [TaskCondition] {
    conditions.sorted().filter { reported.insert($0).inserted }
  }
}

/// Decides when to look for tasks without a handler, and which names to report.
///
/// A look costs two calls to the store: one for names, one for conditions. It is due when a run
/// begins for the first time, and after a task was added, resumed or restarted that has no handler
/// or an unknown condition. A queue whose tasks all have what they need never looks again.
struct MissingHandlerWarning: Sendable {
  /// The names that were reported.
  private(set) var saidNames: Set<String> = []
  private var hasRun = false
  /// Whether a look is due.
  private var isDue = false

  /// Returns whether the run that begins is the first one.
  mutating func isFirstRun() -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    isDue = false
    return true
  }

  /// Notes that a task of this name waits, and no handler is registered for it.
  mutating func waits(_ name: String) {
    if !saidNames.contains(name) { lookIsDue() }
  }

  /// Notes that a task waits for something that was not reported.
  mutating func lookIsDue() { isDue = true }

  /// Takes the look that is due, after a worker has found nothing to do.
  ///
  /// - Returns: Whether to look now. The look then counts as made.
  mutating func takeDue() -> Bool {
    defer { isDue = false }
    return isDue
  }

  /// Notes that tasks of these names wait for handlers.
  ///
  /// - Returns: The names that have not been reported before.
  mutating func namesToSay(of names: [String]) -> [String] {
    names.filter { saidNames.insert($0).inserted }
  }
}
