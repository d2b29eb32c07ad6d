#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A schedule as a queue lists it (``TaskQueue/schedules()``).
public struct TaskSchedule: Sendable, Hashable {
  /// The schedule's name.
  public let name: String
  /// What its rule says, as in `daily 02:30 (Europe/Berlin)`.
  public let rule: String
  /// The name under which the handler of its tasks is registered.
  public let taskName: String
  /// The current occurrence: the one that waits or is under way; `nil` if the schedule is parked.
  public let occurrence: TaskID?
  /// The date of the current occurrence; if the schedule is parked, that of the last one.
  public let date: Date
  /// Why the schedule is parked; `nil` if it is not.
  public let parkedReason: String?
}

extension TaskSchedule: CustomStringConvertible {
  /// As in `nightly: daily 02:30 (Europe/Berlin), next 2027-03-01 01:30:00 +0000`.
  public var description: String {
    let state = parkedReason.map { "parked: \($0)" } ?? "next \(date)"
    return "\(name): \(rule), \(state)"
  }
}
