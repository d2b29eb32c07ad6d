import Synchronization
import SystemFoundation

/// What a queue needs to know to decide which of its periodic work is due.
struct UpkeepState: Sendable {
  /// Decides when to remove ended tasks.
  var pruning: PruningSchedule
  /// Detects that the clock was set back.
  var dates = ClockStepDetector()
  /// Decides when to warn about tasks without a handler.
  var warning = MissingHandlerWarning()
  /// Stores which conditions hold.
  var conditions = ConditionState()
  /// When the occurrences of schedules were last checked.
  var schedulesDate: Date?
  /// Whether an occurrence may have been cancelled or removed before it began.
  var schedulesAreDue = false
  /// The budget of the current run, if it has one.
  var budget: RunBudget?
  /// Whether to look up which awaited tasks have ended, because a call of the store has failed.
  var outcomesAreDue = false

  init(_ configuration: TaskQueueConfiguration) { pruning = PruningSchedule(configuration) }
}

/// Detects from successive dates that the system's clock was set back.
struct ClockStepDetector: Sendable {
  /// The maximum difference, in seconds, between dates that workers read at the same time.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether no date has been checked yet.
  var isUnused: Bool { latest == nil }

  /// Returns whether the clock may have been set back, so that dates in the store are in the
  /// future.
  ///
  /// `read` is the latest date that the queue has read from the clock since the last call. The
  /// first call returns `true`, because the clock may have been set back before this process
  /// started.
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

  /// Makes the next check return `true`, as the first one does, because the dates in the store
  /// could not be corrected.
  mutating func reset() { latest = nil }
}

/// The latest date that a queue has read from its clock, with a precision of a second.
///
/// A date that is later by less than a second is ignored, so that threads rarely write to this
/// object at the same time.
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

  /// Replaces the latest date by an earlier one, because the clock was set back.
  func reset(to date: Date) {
    latest.store(date.timeIntervalSinceReferenceDate, ordering: .relaxed)
  }
}

/// Decides when retained tasks are pruned.
///
/// They are pruned when a run begins, and each time that 256 more tasks have ended and are
/// retained.
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

  /// Returns the changes that prune retained tasks when a run begins.
  ///
  /// They also prune tasks that an earlier configuration retained, and this one does not.
  func prunings(now: Date) -> [TaskChange] { prunings(retentions, now: now) }

  private func prunings(
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

  /// Counts tasks that have ended, and returns the changes that prune retained tasks if it is time.
  mutating func prunings(
    after settlements: some Collection<Settlement>,
    now: @autoclosure () -> Date
  ) -> [TaskChange] {
    endedCount += settlements.count { $0.retainsEndedTask }
    guard endedCount >= Self.interval else { return [] }
    endedCount = 0
    // A succeeded task may be retained only because its unique key still prevents duplicates.
    return prunings(
      retentions.filter { $0.retention.retains || $0.state == .succeeded },
      now: now()
    )
  }
}

/// Which conditions hold, as far as a queue knows, and the monitors that report them.
struct ConditionState: Sendable {
  /// A monitor, which reports during each run whether a condition holds.
  struct Registration: Sendable {
    let number: Int
    let condition: TaskCondition
    let monitor: any ConditionMonitor
    /// Whether attempts that require the condition are cancelled when it no longer holds.
    let interruptsTasks: Bool
  }

  private(set) var holding: Set<TaskCondition> = []
  /// The conditions that have been set or have a monitor.
  private(set) var known: Set<TaskCondition> = []
  /// The unknown conditions of which the application has been warned.
  private(set) var reported: Set<TaskCondition> = []
  private var registrations: [TaskCondition: Registration] = [:]
  private var lastNumber = 0
  /// The numbers of the monitors that have not reported yet in this run.
  private var awaited: Set<Int> = []

  /// Sets whether a condition holds, and returns whether this is new.
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
    // If a run waits for the first report of the replaced monitor, let it wait for the new one.
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

  /// Returns the monitors that were registered after the monitor with the given number, in order.
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

  /// Returns whether a condition is unknown, and the application has not been warned of that.
  func hasUnreported(in conditions: Set<TaskCondition>) -> Bool {
    !unknown(in: conditions).isSubset(of: reported)
  }

  /// Marks unknown conditions as reported, and returns, in order, those that were not before.
  mutating func takeUnreported(of conditions: Set<TaskCondition>) -> [TaskCondition] {
    conditions.sorted().filter { reported.insert($0).inserted }
  }
}

/// Decides when to search the store for tasks that can't start, and of which names to warn.
///
/// A task can't start if its name has no handler, or if one of its conditions is unknown. A check
/// costs two calls to the store: one for names, one for conditions. It is due when the first run
/// begins, and after a task that can't start was added, resumed or restarted.
struct MissingHandlerWarning: Sendable {
  /// The names of which the application has been warned.
  private(set) var reportedNames: Set<String> = []
  private var hasRun = false
  /// Whether a check is due.
  private var isDue = false
  private var hasCheckedQueueNames = false

  /// Returns whether the names of the queues in the store were not checked yet; if so, records that
  /// they are.
  mutating func takeQueueNameCheck() -> Bool {
    defer { hasCheckedQueueNames = true }
    return !hasCheckedQueueNames
  }

  /// Returns whether this is the first run; if so, records that the check for it is made.
  mutating func takeFirstRun() -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    isDue = false
    return true
  }

  /// Makes a check due, because a task waits whose name has no handler.
  mutating func makeCheckDue(forName name: String) {
    if !reportedNames.contains(name) { makeCheckDue() }
  }

  /// Makes a check due, because a task waits for something of which no warning was given.
  mutating func makeCheckDue() { isDue = true }

  /// Returns whether a check is due; if so, records that it is made.
  mutating func takeDueCheck() -> Bool {
    defer { isDue = false }
    return isDue
  }

  /// Marks names without a handler as reported, and returns those that were not before.
  mutating func takeUnreportedNames(of names: [String]) -> [String] {
    names.filter { reportedNames.insert($0).inserted }
  }
}
