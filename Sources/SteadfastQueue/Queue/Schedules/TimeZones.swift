import Synchronization
import SystemFoundation

/// The time zones of the rules of a queue's schedules.
///
/// A schedule is stored with the identifier of its zone. On Linux, a zone can be made from an
/// identifier only if the executable links the library that contains the zones. So the zones that
/// the application has passed to the queue are cached.
struct TimeZones: ~Copyable, Sendable {
  private let known = Mutex<[String: TimeZone]>([:])

  /// Caches a zone that the application has passed to the queue.
  ///
  /// A zone that follows the system's settings may change later. So a fixed zone with the same
  /// identifier is cached instead, if one can be made.
  func add(_ zone: TimeZone) {
    let identifier = zone.identifier
    known.withLock { $0[identifier] = TimeZone(identifier: identifier) ?? zone }
  }

  /// Returns the rule of a schedule, or the reason for which the rule can't be made.
  func rule(of definition: StoredSchedule.Definition) -> Result<ScheduleRule, ParkedSchedule> {
    let identifier = definition.zone
    guard let zone = zone(identifier) else {
      return .failure(
        ParkedSchedule(
          reason: "the time zone '\(identifier)' is not available in this process; link Foundation "
            + "or FoundationInternationalization into the executable (import it in one of its "
            + "files), or call schedule(_:_:_:) with the zone, and run the queue again"
        )
      )
    }
    guard let rule = ScheduleRule(text: definition.rule, in: zone) else {
      return .failure(
        ParkedSchedule(
          reason: "this version of the package does not support the rule '\(definition.rule)'; use "
            + "the version that stored the schedule, or call schedule(_:_:_:) with another rule"
        )
      )
    }
    return .success(rule)
  }

  private func zone(_ identifier: String) -> TimeZone? {
    if identifier == TimeZone.gmt.identifier { return .gmt }
    if let zone = known.withLock({ $0[identifier] }) { return zone }
    guard let zone = TimeZone(identifier: identifier) else { return nil }
    known.withLock { $0[identifier] = zone }
    return zone
  }
}
