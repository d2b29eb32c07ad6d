public import SystemFoundation

/// The date of a schedule for which a handler performs a recurring task.
public struct TaskOccurrence: Sendable, Hashable {
  /// The date that the schedule's rule gives.
  ///
  /// An attempt may start later: because the schedule has a `spread`, because the queue did not
  /// run, or because the attempt is a retry. For example, use this date, and not the clock's, to
  /// decide which day a report is for.
  public let date: Date
  /// Whether the attempt started more than a minute after the date plus the schedule's delay, which
  /// its `spread` causes.
  ///
  /// An attempt is late if the queue did not run or was busy, for example, or if it is a retry.
  public let isLate: Bool
  /// The number of earlier dates that were missed, and that this occurrence also covers.
  ///
  /// The number is 0 unless the schedule has `missed: .once`, and at most about 10,000. It is known
  /// until another occurrence of the schedule begins.
  public let missedCount: Int

  /// The number of seconds after which an attempt counts as late.
  private static let tolerance = 60.0

  init(date: Date, delay: Duration, missedCount: Int, now: Date) {
    self.date = date
    isLate = now > date + delay / .seconds(1) + Self.tolerance
    self.missedCount = missedCount
  }
}

/// The IDs of occurrences: tasks that belong to a schedule.
///
/// The ID of an occurrence contains the key of its schedule and its date, so that the task's record
/// needs no additional space for them. The ID is a version 8 UUID (RFC 9562). It consists of 48
/// bits of milliseconds, by which all IDs sort; the 36 bits of the schedule's ``ScheduleKey``, in
/// two parts around the version and the variant; and 38 bits for the number of seconds from 1970 to
/// the date.
extension TaskID {
  private static var dateBits: UInt64 { 38 }

  init(occurrenceOf key: ScheduleKey, at date: Date, made milliseconds: UInt64) {
    let seconds = UInt64(max(0, date.timeIntervalSince1970)) & (1 << Self.dateBits - 1)
    high = (milliseconds & 0xFFFF_FFFF_FFFF) << 16 | 0x8000 | key.bits >> 24
    low = 0x8000_0000_0000_0000 | (key.bits & 0xFF_FFFF) << Self.dateBits | seconds
  }

  /// When the task was made, in milliseconds since 1970.
  var madeMilliseconds: UInt64 { high >> 16 }

  /// Whether the ID is that of an occurrence.
  var isOccurrence: Bool { high & 0xF000 == 0x8000 && low >> 62 == 0b10 }

  /// The key of the schedule that the occurrence belongs to.
  var scheduleKey: ScheduleKey {
    ScheduleKey(bits: (high & 0xFFF) << 24 | low >> Self.dateBits & 0xFF_FFFF)
  }

  /// The date of the occurrence, if the task belongs to a schedule; `nil` for other tasks.
  public var occurrenceDate: Date? {
    guard isOccurrence else { return nil }
    return Date(timeIntervalSince1970: Double(low & (1 << Self.dateBits - 1)))
  }
}

/// Identifies a schedule of a queue by a 36-bit hash of its name.
struct ScheduleKey: Hashable, Sendable {
  let bits: UInt64

  init(bits: UInt64) { self.bits = bits }

  /// Makes the key for a schedule's name; it is the same in every process.
  ///
  /// Of 1,400 stores with 10,000 schedules each, about one has two names with the same key. The
  /// second of these schedules is refused.
  init(_ name: String) { self.init(bits: name.utf8.stableHash >> 28) }

  /// The beginning of the names under which schedules are stored.
  static let valuePrefix = "steadfast.schedule."

  /// The name under which the schedule is stored.
  var valueName: String { Self.valuePrefix + Hexadecimal.text(bits, digits: 9) }

  /// Makes the key of the schedule that is stored under a name; `nil` if the name has another form.
  init?(valueName: String) {
    guard let bits = UInt64(valueName.dropFirst(Self.valuePrefix.count), radix: 16) else {
      return nil
    }
    self.init(bits: bits)
    guard self.valueName == valueName else { return nil }
  }

  /// The name under which the ID of an occurrence is stored that has begun, while its schedule is
  /// removed.
  var begunName: String { "steadfast.begun.\(Hexadecimal.text(bits, digits: 9))" }
}

/// A schedule, as ``TaskQueue/schedules()`` returns it.
public struct TaskSchedule: Sendable, Hashable {
  /// The schedule's name.
  public let name: String
  /// The schedule's rule as text, as in `daily 02:30 (Europe/Berlin)`.
  public let rule: String
  /// The name under which the handler of the schedule's tasks is registered.
  public let taskName: String
  /// The next occurrence, which has not begun; `nil` if the schedule is parked.
  public let occurrence: TaskID?
  /// The date of the next occurrence; if the schedule is parked, the date of the last
  /// occurrence.
  public let date: Date
  /// Why the schedule is parked; `nil` if it is not.
  public let parkedReason: String?
}

extension TaskSchedule: CustomStringConvertible {
  /// The schedule as text, as in
  /// `nightly: daily 02:30 (Europe/Berlin), next 2027-03-01 01:30:00 +0000`.
  public var description: String {
    let state = parkedReason.map { "parked: \($0)" } ?? "next \(date)"
    return "\(name): \(rule), \(state)"
  }
}
