import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Looking at schedules, and at the beginning of a run.
extension TaskQueue {
  /// Returns the schedules of the queue, in the order of their names.
  ///
  /// They include those that another process, or an earlier version of the application, has made.
  /// - Throws: What the store throws.
  public nonisolated func schedules() async throws -> [TaskSchedule] {
    try await open()
    let schedules = try await storedSchedules().map { TaskSchedule($0.schedule) }
    return schedules.sorted { $0.name < $1.name }
  }

  /// Returns the next dates of a schedule: that of its current occurrence, and those after it.
  ///
  /// The dates are those of the rule, without the spread.
  ///
  /// - Parameters:
  ///   - name: the schedule's name.
  ///   - count: how many dates to return.
  /// - Returns: The dates; none if there is no such schedule, or if it is parked.
  /// - Throws: What the store throws.
  public nonisolated func occurrences(of name: String, count: Int) async throws -> [Date] {
    try await open()
    let key = ScheduleKey(name)
    guard count > 0, let schedule = try await storedSchedule(key)?.schedule,
      schedule.name == name, schedule.id != nil,
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return [] }
    var dates = [schedule.date]
    while dates.count < count, let date = dates.last.flatMap(rule.next) { dates.append(date) }
    return dates
  }

  /// Puts back occurrences that are missing, and goes on with schedules that were parked.
  ///
  /// It does so when a run of the queue begins.
  /// - Throws: What the store throws.
  nonisolated func restoreSchedules() async throws {
    let now = self.now
    upkeep.withLock { $0.schedulesDate = now }
    for (schedule, bytes) in try await storedSchedules() {
      let key = ScheduleKey(schedule.name)
      var (schedule, bytes) = (schedule, bytes)
      for attempt in 0..<Self.mostLooks {
        if try await restore(schedule, bytes, key, attempt) { break }
        guard let changed = try await storedSchedule(key) else { break }
        (schedule, bytes) = changed
      }
    }
  }

  /// Does so again if it was last done an hour ago: another process may have parked a schedule with
  /// which this one can go on.
  /// - Throws: What the store throws.
  nonisolated func restoreSchedulesEachHour() async throws {
    guard let last = upkeep.withLock({ $0.schedulesDate }),
      abs(now.timeIntervalSince(last)) >= 3_600
    else { return }
    try await restoreSchedules()
  }

  /// How often another process may change a schedule while this one looks at it.
  static let mostLooks = 100

  private nonisolated func storedSchedules() async throws -> [(
    schedule: StoredSchedule, bytes: [UInt8]
  )] {
    guard let root = try await store.value(named: ScheduleIndex.rootName) else { return [] }
    var found: [(schedule: StoredSchedule, bytes: [UInt8])] = []
    for part in try ScheduleIndex.parts(of: root) {
      let value = try await store.value(named: ScheduleIndex.name(ofPart: part))
      for key in try ScheduleIndex.keys(of: value, part) {
        // It may have been removed since.
        if let schedule = try await storedSchedule(key) { found.append(schedule) }
      }
    }
    return found
  }

  // MARK: The index

  nonisolated func indexChanges(adding key: ScheduleKey) async throws -> [TaskChange] {
    let root = try await store.value(named: ScheduleIndex.rootName)
    let parts = try root.map { try ScheduleIndex.parts(of: $0) } ?? []
    let name = ScheduleIndex.name(ofPart: key.part)
    let part = try await store.value(named: name)
    let keys = try ScheduleIndex.keys(of: part, key.part)
    var changes: [TaskChange] = []
    if !keys.contains(key) {
      changes.append(.setValue(named: name, from: part, to: ScheduleIndex.part(of: keys + [key])))
    }
    if !parts.contains(key.part) {
      changes.append(
        .setValue(
          named: ScheduleIndex.rootName,
          from: root,
          to: ScheduleIndex.root(of: parts + [key.part])
        )
      )
    }
    return changes
  }

  nonisolated func indexChanges(removing key: ScheduleKey) async throws -> [TaskChange] {
    let name = ScheduleIndex.name(ofPart: key.part)
    let part = try await store.value(named: name)
    let keys = try ScheduleIndex.keys(of: part, key.part)
    guard keys.contains(key) else { return [] }
    return [
      .setValue(named: name, from: part, to: ScheduleIndex.part(of: keys.filter { $0 != key }))
    ]
  }

  // MARK: The spread

  /// Returns how many seconds after its date a schedule begins.
  ///
  /// It depends on its name and on the installation, which is the store.
  nonisolated func delay(of name: String, within spread: Duration) async throws -> Int {
    let seconds = UInt64(spread.components.seconds)
    guard seconds > 0 else { return 0 }
    let installation = try await installation()
    return Int((installation + Array(name.utf8)).stableHash % (seconds + 1))
  }

  /// Returns what tells this store from others; the first call draws it.
  private nonisolated func installation() async throws -> [UInt8] {
    let name = Self.installationName
    if let present = try await store.value(named: name) { return present }
    var generator = generators.makeGenerator()
    let drawn = Array(Hexadecimal.text(generator.next(), digits: 16).utf8)
    // Another process may have drawn one since.
    try await setValue(named: name, .durable) { $0 ?? drawn }
    return try await store.value(named: name) ?? drawn
  }

  private static let installationName = "steadfast.installation"
}
