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
