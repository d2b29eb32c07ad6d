import SystemFoundation

/// A schedule as it is stored: its definition, and its next occurrence.
///
/// A schedule is stored as JSON under a name (``Persistence/value(named:)``). When the next
/// occurrence begins, one batch of changes compares and sets this value, and adds the following
/// occurrence. So only one of several processes adds it, and a crash loses no occurrence.
struct StoredSchedule: Codable, Equatable, Sendable {
  /// What the program has defined; it is the same at each launch.
  struct Definition: Codable, Equatable, Sendable {
    /// The ``ScheduleRule/text`` of the rule.
    let rule: String
    /// The identifier of the rule's time zone.
    let zone: String
    /// The limit of ``MissedOccurrences/once(within:)``; `nil` for no limit.
    var missedLimit: Duration?
    /// The count of ``MissedOccurrences/each(atMost:)``; `nil` for
    /// ``MissedOccurrences/once(within:)``.
    var missedCount: Int?
    var spread: Duration?
    var overlaps: Bool?
    var task: TaskTemplate

    init(
      _ rule: ScheduleRule,
      _ missed: MissedOccurrences,
      spread: Duration,
      overlaps: Bool,
      _ task: TaskTemplate
    ) {
      self.rule = rule.text
      zone = rule.zone.identifier
      switch missed.kind {
      case .once(let limit): missedLimit = limit
      case .each(let count): missedCount = count
      }
      self.spread = spread == .zero ? nil : spread
      self.overlaps = overlaps ? true : nil
      self.task = task
    }

    /// Returns whether both definitions are stored as the same bytes.
    ///
    /// `==` does not compare the bytes: Swift considers some strings with different bytes equal.
    func hasSameBytes(as other: Definition) throws -> Bool {
      try StableJSON.encode(self) == StableJSON.encode(other)
    }

    var missed: MissedOccurrences {
      missedCount.map { .each(atMost: $0) } ?? .once(within: missedLimit)
    }
  }

  let name: String
  var definition: Definition
  /// The seconds between an occurrence's date and the date at which it becomes available; `nil` if
  /// there is no delay.
  var delay: Int?
  /// The ID of the next occurrence, which has not begun; `nil` if the schedule is parked.
  ///
  /// Earlier versions advanced a schedule when an occurrence ended. In what they have stored, this
  /// may be an occurrence that has begun.
  var id: TaskID?
  /// The occurrence that began last; `nil` if none has begun.
  var begun: Begun?
  /// The IDs of occurrences that later ones have replaced before they began; `nil` if there are
  /// none.
  ///
  /// They get no attempts, even if queues have claimed them already. When an ID is added, those of
  /// ended tasks are removed.
  var replaced: [TaskID]?
  /// The date of the next occurrence, in seconds since 1970; if the schedule is parked, the date
  /// of the last occurrence; if there was none, the date when the schedule was created.
  private var instant: Int
  /// The date of the previous occurrence, in seconds since 1970; for a new schedule, the date when
  /// it was created.
  private var lastInstant: Int
  /// The number of missed dates that the next occurrence also covers; `nil` for none.
  var missedCount: Int?
  /// Why the schedule is parked.
  var parkedReason: String?

  /// An occurrence that has begun.
  struct Begun: Codable, Equatable, Sendable {
    let id: TaskID
    /// The number of missed dates that it also covers; `nil` for none.
    var missedCount: Int?
  }

  init(_ name: String, _ definition: Definition, delay: Int, createdAt now: Date) {
    self.name = name
    self.definition = definition
    self.delay = delay == 0 ? nil : delay
    instant = Int(now.timeIntervalSince1970.rounded(.down))
    lastInstant = instant
  }

  var date: Date { Date(timeIntervalSince1970: Double(instant)) }
  var overlaps: Bool { definition.overlaps ?? false }
  /// When the next occurrence may begin.
  var availableDate: Date { date + Double(delay ?? 0) }

  // MARK: Changes

  /// Advances to the next date, or parks the schedule if there is none.
  ///
  /// If `wasHandled`, the next occurrence begins or was cancelled; if not, its date was missed.
  /// `rule` is a failure if the rule can't be made from its text. The caller sets ``id`` when it
  /// makes the occurrence for the new date.
  ///
  /// - Returns: The decision about the dates until now; `nil` if the schedule was parked.
  mutating func advance(
    wasHandled: Bool,
    now: Date,
    _ rule: Result<ScheduleRule, ParkedSchedule>
  ) -> CatchUp? {
    // If the occurrence gets no attempt, the next one also covers what it covered.
    let covered = wasHandled ? 0 : missedCount ?? 0
    missedCount = nil
    switch rule {
    case .failure(let problem):
      parkedReason = problem.reason
      return nil
    case .success(let rule):
      let catchUp = CatchUp(after: date, wasHandled: wasHandled, now: now, policy(with: rule))
      guard let next = catchUp.next else {
        parkedReason = Self.noFurtherDate
        return nil
      }
      parkedReason = nil
      lastInstant = instant
      instant = Int(next.timeIntervalSince1970)
      if catchUp.missedCount > 0 { missedCount = catchUp.missedCount + covered }
      return catchUp
    }
  }

  private static let noFurtherDate = "its rule has no further date before the year 10000"

  /// The number of seconds by which the clock may be ahead without being considered wrong.
  ///
  /// Cron, too, considers a clock wrong if it is corrected by more than three hours.
  private static let maxSecondsAhead = 10_800.0

  /// Returns whether the next occurrence was made while a clock was far ahead, so that the
  /// schedule has advanced too far.
  ///
  /// This depends on when the occurrence was made, and not on its date: the date is far ahead, too,
  /// if a caller has cancelled the occurrences of the next days.
  func isAhead(of now: Date) -> Bool {
    guard let id else { return false }
    return Double(id.madeMilliseconds) / 1_000 > now.timeIntervalSince1970 + Self.maxSecondsAhead
  }

  /// Advances to the rule's first date after `now`, or parks the schedule if there is none.
  ///
  /// Call this if the rule is new or has changed, or if the clock was set back. No task is
  /// performed for dates that have passed.
  mutating func advanceToFirstDate(after now: Date, of rule: ScheduleRule) {
    missedCount = nil
    if isAhead(of: now) {
      lastInstant = Int(now.timeIntervalSince1970.rounded(.down))
      // The next occurrence's ID need not sort after the ID that was made when the clock was ahead.
      id = nil
    }
    let last = Date(timeIntervalSince1970: Double(lastInstant))
    guard let next = rule.next(after: rule.equivalentStart(for: last, near: now)) else {
      parkedReason = Self.noFurtherDate
      return
    }
    parkedReason = nil
    instant = Int(next.timeIntervalSince1970)
  }

  /// Parks the schedule, and goes back to the previous date, because the next occurrence can't
  /// be made.
  mutating func park(because reason: String) {
    parkedReason = reason
    id = nil
    missedCount = nil
    instant = lastInstant
  }

  /// Returns whether the next occurrence may still begin; if not, a later occurrence replaces
  /// it.
  func mayBegin(now: Date, _ rule: ScheduleRule) -> Bool {
    CatchUp.mayBegin(date, now: now, policy(with: rule))
  }

  /// Returns whether the occurrences of this schedule and of another have the same dates.
  func hasSameDates(as other: StoredSchedule) -> Bool {
    definition.rule == other.definition.rule && definition.zone == other.definition.zone
      && definition.spread == other.definition.spread && delay == other.delay
  }

  /// Returns how many dates until `now` are skipped if the next occurrence is removed.
  func droppedCount(now: Date, _ rule: Result<ScheduleRule, ParkedSchedule>) -> Int {
    guard availableDate <= now else { return 0 }
    guard case .success(let rule) = rule else { return 1 }
    let policy = CatchUp.Policy(rule: rule, missed: .once(), delay: .seconds(delay ?? 0))
    let catchUp = CatchUp(after: date, wasHandled: false, now: now, policy)
    return catchUp.missedCount + max(1, catchUp.skippedCount)
  }

  private func policy(with rule: ScheduleRule) -> CatchUp.Policy {
    CatchUp.Policy(rule: rule, missed: definition.missed, delay: .seconds(delay ?? 0))
  }
}

extension StoredSchedule.Begun {
  /// Makes the occurrence whose ID was stored when its schedule was removed.
  init?(_ bytes: [UInt8]) {
    guard let id = TaskID(String(decoding: bytes, as: UTF8.self)) else { return nil }
    self.init(id: id)
  }
}

/// The error for a schedule whose next occurrence can't be made, so that the schedule is parked.
struct ParkedSchedule: Error, Equatable {
  let reason: String
}

extension StoredSchedule {
  /// Decodes a schedule from its stored bytes.
  ///
  /// - Throws: A ``TaskQueueError`` if this version can't decode them.
  init(_ bytes: [UInt8], _ key: ScheduleKey) throws(TaskQueueError) {
    do {
      self = try JSONDecoder().decode(StoredSchedule.self, from: Data(bytes))
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "the value '\(key.valueName)' of the store is not a schedule that this version can read; run "
          + "the version that stored it, or a later one",
        underlying: error
      )
    }
  }

  /// The encoded schedule, as it is stored.
  var bytes: [UInt8] {
    get throws { try StableJSON.encode(self) }
  }
}

extension TaskSchedule {
  init(_ schedule: StoredSchedule) {
    let hasZone = !schedule.definition.rule.hasPrefix("every ")
    self.init(
      name: schedule.name,
      rule: schedule.definition.rule + (hasZone ? " (\(schedule.definition.zone))" : ""),
      taskName: schedule.definition.task.name,
      occurrence: schedule.id,
      date: schedule.date,
      parkedReason: schedule.parkedReason
    )
  }
}

/// What all occurrences of a schedule have in common: the task's name, payload and options.
struct TaskTemplate: Codable, Equatable, Sendable {
  let name: String
  private let format: String
  private let version: Int
  /// The payload, if it is JSON.
  private let json: String?
  /// The payload, if it is not JSON.
  private let data: Data?
  private let priority: Int?
  /// The maximum number of retries; -1 for no limit.
  private let maxRetries: Int?
  private let usesBackoff: Bool?
  private let timeLimit: Duration?
  private let tags: [String]?
  /// The metadata; `nil` if there is none, as in schedules that earlier versions have stored.
  private let metadata: [String: String]?
  private let orderKey: String?
  private let holdsOrder: Bool?
  private let conditions: [String]?

  init(_ name: String, _ payload: StoredPayload, _ options: TaskOptions) throws {
    self.name = name
    priority = options.priority?.rawValue
    maxRetries =
      switch options.maxRetries {
      case .atMost(let count): count
      case .alwaysRetry: -1
      case nil: nil
      }
    usesBackoff = options.usesBackoff
    timeLimit = options.timeLimit
    tags = options.tags.isEmpty ? nil : options.tags.sorted()
    metadata = options.metadata.isEmpty ? nil : options.metadata
    orderKey = options.orderKey
    holdsOrder = options.orderKey == nil ? nil : options.blocksOrderOnFailure
    conditions = options.conditions.isEmpty ? nil : options.conditions.map(\.rawValue).sorted()
    let bytes = try payload.bytes()
    format = payload.format.rawValue
    version = payload.version
    json = payload.format == .json ? String(decoding: bytes, as: UTF8.self) : nil
    data = payload.format == .json ? nil : Data(bytes)
  }

  /// The payload of each occurrence.
  ///
  /// - Throws: A ``TaskQueueError`` if a later version stored the payload in a new format.
  var payload: StoredPayload {
    get throws(TaskQueueError) {
      guard let format = StoredPayload.Format(rawValue: format) else {
        throw TaskQueueError(
          .undecodablePayload,
          "the payload of '\(name)' has the format '\(format)', which this version can't read; run "
            + "the version that stored it, or a later one"
        )
      }
      let bytes = json.map { Array($0.utf8) } ?? data.map { Array($0) } ?? []
      return StoredPayload(bytes, format: format, version: version)
    }
  }

  /// Makes the record of an occurrence.
  func record(
    id: TaskID,
    payload: StoredPayload,
    prohibitsBackoff: Bool,
    availableDate: Date,
    after others: Set<TaskID>,
    now: Date
  ) -> TaskRecord {
    TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority.map(TaskQueue.Priority.init(rawValue:)) ?? .normal,
      createdDate: now,
      maxRetries: maxRetries.map { $0 < 0 ? .alwaysRetry : .atMost($0) } ?? 10,
      usesBackoff: !prohibitsBackoff && usesBackoff ?? true,
      orderKey: orderKey,
      blocksOrderOnFailure: holdsOrder ?? false,
      conditions: Set((conditions ?? []).map(TaskCondition.init(rawValue:))),
      dependencies: TaskDependencies(on: others, rule: others.isEmpty ? .allSucceeded : .allEnded),
      tags: Set(tags ?? []),
      metadata: metadata ?? [:],
      timeLimit: timeLimit,
      availableDate: availableDate.storable
    )
  }
}
