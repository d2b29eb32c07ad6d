#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The IDs of occurrences.
///
/// They say of which schedule and of which date an occurrence is, so that its record needs no more
/// room than that of any task. They are version 8 UUIDs (RFC 9562): 48 bits of milliseconds, by
/// which all IDs sort; 36 bits of the schedule's ``ScheduleKey``, in two parts around the version
/// and the variant; and 38 bits for the seconds from 1970 to the date.
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

  /// The schedule of which the task is an occurrence.
  var scheduleKey: ScheduleKey { scheduleKey(ofQueue: nil) }

  /// The schedule of a queue of which the task is an occurrence.
  func scheduleKey(ofQueue queue: String?) -> ScheduleKey {
    ScheduleKey(bits: (high & 0xFFF) << 24 | low >> Self.dateBits & 0xFF_FFFF, queue: queue)
  }

  /// The date of which the task is the occurrence, if it is one of a schedule; `nil` for others.
  public var occurrenceDate: Date? {
    guard isOccurrence else { return nil }
    return Date(timeIntervalSince1970: Double(low & (1 << Self.dateBits - 1)))
  }
}

/// 36 bits that stand for the name of a schedule, and the queue that the schedule is of.
struct ScheduleKey: Hashable, Sendable {
  let bits: UInt64
  /// The name of the queue, if it is another one than the queue that uses the key.
  let queue: String?

  init(bits: UInt64, queue: String? = nil) {
    self.bits = bits
    self.queue = queue
  }

  /// Makes the key of a name: the same in every process.
  ///
  /// Two names of a store with 10,000 schedules have the same key once in 1,400 stores. Then the
  /// second one is refused.
  init(_ name: String) { self.init(bits: name.utf8.stableHash >> 28) }

  /// The name of the value that holds the schedule.
  var valueName: String {
    let name = "steadfast.schedule.\(Hexadecimal.text(bits, digits: 9))"
    return queue.map { "\(name) \($0)" } ?? name
  }

  /// The number of the part of the index in which the schedule is.
  var part: Int { Int(bits >> 30) }
}
