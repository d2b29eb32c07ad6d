#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A schedule as the store holds it: what it says, and which occurrence is the current one.
///
/// It is a value of the store, in JSON. A batch that ends the current occurrence compares it and
/// sets it. So of several processes one adds the next occurrence, and a crash loses none.
struct StoredSchedule: Codable, Equatable, Sendable {
  /// What the application has said, and what is the same at each launch.
  struct Definition: Codable, Equatable, Sendable {
    /// ``ScheduleRule/text``.
    let rule: String
    /// The identifier of the zone.
    let zone: String
    /// How late the latest missed date may be made up for, if there is a limit.
    var missedLimit: Duration?
    /// For how many missed dates the task is performed; `nil` for once.
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

    /// Returns whether both have the same bytes.
    ///
    /// Texts are equal if they look the same, and their bytes may differ for all that.
    func isSame(as other: Definition) throws -> Bool {
      try StableJSON.encode(self) == StableJSON.encode(other)
    }

    var missed: MissedOccurrences {
      missedCount.map { .each(atMost: $0) } ?? .once(within: missedLimit)
    }
  }

  let name: String
  var definition: Definition
  /// How many seconds after its date an occurrence may begin.
  var delay: Int?
  /// The occurrence that waits or is under way; `nil` if the schedule is parked.
  var id: TaskID?
  /// The date of that occurrence, in seconds since 1970; if it is parked, of the last one.
  private var instant: Int
  /// The date of the occurrence before; of a new schedule, when it was made.
  private var lastInstant: Int
  /// For how many other dates the current occurrence stands.
  var missedCount: Int?
  /// Why the schedule is parked.
  var parkedReason: String?

  init(_ name: String, _ definition: Definition, delay: Int, made now: Date) {
    self.name = name
    self.definition = definition
    self.delay = delay == 0 ? nil : delay
    instant = Int(now.timeIntervalSince1970.rounded(.down))
    lastInstant = instant
  }

  var date: Date { Date(timeIntervalSince1970: Double(instant)) }
  var overlaps: Bool { definition.overlaps ?? false }
  /// When the current occurrence may begin.
  var availableDate: Date { date + Double(delay ?? 0) }

  // MARK: Steps

  /// Goes on to the next date, after the current occurrence has ended, was missed or is missing.
  ///
  /// The ID stays that of the last occurrence until the next one is made. `wasHandled` says whether
  /// the current one has ended or is under way; if not, it was missed. Instead of the rule there
  /// may be the reason why it can't be made.
  /// - Returns: What became of the dates until now; `nil` if the schedule is parked.
  mutating func advance(
    wasHandled: Bool,
    now: Date,
    _ rule: Result<ScheduleRule, ParkedSchedule>
  ) -> CatchUp? {
    missedCount = nil
    switch rule {
    case .failure(let problem):
      parkedReason = problem.reason
      return nil
    case .success(let rule):
      let catchUp = CatchUp(after: date, wasHandled: wasHandled, now: now, policy(rule))
      guard let next = catchUp.next else {
        parkedReason = "its rule has no further date"
        return nil
      }
      parkedReason = nil
      lastInstant = instant
      instant = Int(next.timeIntervalSince1970)
      missedCount = catchUp.missedCount == 0 ? nil : catchUp.missedCount
      return catchUp
    }
  }

  /// How many seconds the clock that an occurrence was made by may have been ahead.
  ///
  /// If it was further ahead, it was wrong, and dates may come again. Cron takes a clock that goes
  /// back by more than three hours for a correction, too.
  private static let mostAhead = 10_800.0

  /// Whether the schedule has gone on by a clock that was far ahead.
  ///
  /// The dates don't tell: a caller may have cancelled those of the next days.
  func isAhead(of now: Date) -> Bool {
    guard let id else { return false }
    return Double(id.madeMilliseconds) / 1_000 > now.timeIntervalSince1970 + Self.mostAhead
  }

  /// Goes on to the first date after now by a rule that has changed, or is new, or after the clock
  /// was set back.
  ///
  /// Dates that have passed don't count: nothing is performed because of the change.
  mutating func begin(now: Date, _ rule: ScheduleRule) {
    missedCount = nil
    if isAhead(of: now) {
      lastInstant = Int(now.timeIntervalSince1970.rounded(.down))
      // The next ID is not to come after this one.
      id = nil
    }
    let last = Date(timeIntervalSince1970: Double(lastInstant))
    guard let next = rule.next(after: rule.restart(near: now, from: last)) else {
      parkedReason = "its rule has no further date"
      return
    }
    parkedReason = nil
    instant = Int(next.timeIntervalSince1970)
  }

  /// Parks the schedule before an occurrence of its current date was added.
  mutating func park(because reason: String) {
    parkedReason = reason
    id = nil
    missedCount = nil
    instant = lastInstant
  }

  /// Returns the schedule with its current occurrence as it was before a step.
  func goingBack(to before: StoredSchedule) -> StoredSchedule {
    var schedule = self
    schedule.id = before.id
    schedule.instant = before.instant
    schedule.lastInstant = before.lastInstant
    schedule.missedCount = before.missedCount
    schedule.parkedReason = before.parkedReason
    return schedule
  }

  /// Returns whether the current occurrence may begin, or is to be replaced by a later one.
  func mayBegin(now: Date, _ rule: ScheduleRule) -> Bool {
    CatchUp.mayBegin(date, now: now, policy(rule))
  }

  /// Returns whether another schedule has the same dates.
  func hasDates(of other: StoredSchedule) -> Bool {
    definition.rule == other.definition.rule && definition.zone == other.definition.zone
      && definition.spread == other.definition.spread && delay == other.delay
  }

  /// Returns for how many dates until now nothing is performed if the occurrence is dropped.
  func droppedCount(now: Date, _ rule: Result<ScheduleRule, ParkedSchedule>) -> Int {
    guard availableDate <= now else { return 0 }
    guard case .success(let rule) = rule else { return 1 }
    let policy = CatchUp.Policy(rule: rule, missed: .once(), delay: .seconds(delay ?? 0))
    let catchUp = CatchUp(after: date, wasHandled: false, now: now, policy)
    return catchUp.missedCount + max(1, catchUp.skippedCount)
  }

  private func policy(_ rule: ScheduleRule) -> CatchUp.Policy {
    CatchUp.Policy(rule: rule, missed: definition.missed, delay: .seconds(delay ?? 0))
  }
}

/// Why a schedule is parked: no next occurrence can be made.
struct ParkedSchedule: Error, Equatable {
  let reason: String
}

extension StoredSchedule {
  /// Reads the value of a schedule.
  ///
  /// - Throws: A ``TaskQueueError`` if the value makes no sense.
  init(_ bytes: [UInt8], _ key: ScheduleKey) throws(TaskQueueError) {
    do {
      self = try JSONDecoder().decode(StoredSchedule.self, from: Data(bytes))
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "the value '\(key.valueName)' of the store is no schedule that this version can read",
        underlying: error
      )
    }
  }

  /// The bytes of the value.
  var bytes: [UInt8] {
    get throws { try StableJSON.encode(self) }
  }
}

extension TaskSchedule {
  init(_ schedule: StoredSchedule) {
    let isElapsed = schedule.definition.rule.hasPrefix("every ")
    self.init(
      name: schedule.name,
      rule: schedule.definition.rule + (isElapsed ? "" : " (\(schedule.definition.zone))"),
      taskName: schedule.definition.task.name,
      occurrence: schedule.id,
      date: schedule.date,
      parkedReason: schedule.parkedReason
    )
  }
}
