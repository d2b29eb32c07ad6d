import Synchronization
import SystemFoundation

/// The time zones that the rules of a queue's schedules need.
///
/// On Linux, a zone can be made from its identifier only if the executable links the library that
/// contains the zones. So zones that the application has passed to the queue are also cached.
struct TimeZones: ~Copyable, Sendable {
  private let known = Mutex<[String: TimeZone]>([:])

  /// Caches the zone of a rule from the application.
  ///
  /// A zone that follows the system's settings would change later, so its current zone is cached.
  func add(_ zone: TimeZone) {
    let identifier = zone.identifier
    known.withLock { $0[identifier] = TimeZone(identifier: identifier) ?? zone }
  }

  /// Returns the rule of a schedule, or the reason why it can't be made.
  func rule(of definition: StoredSchedule.Definition) -> Result<ScheduleRule, ParkedSchedule> {
    let identifier = definition.zone
    guard let zone = zone(identifier) else {
      return .failure(
        ParkedSchedule(
          reason: "its time zone '\(identifier)' is not available in this process; link Foundation "
            + "or FoundationInternationalization into the executable (import it in one of its "
            + "files), or call schedule(_:_:_:) with the zone, and run the queue again"
        )
      )
    }
    guard let rule = ScheduleRule(text: definition.rule, in: zone) else {
      return .failure(
        ParkedSchedule(reason: "this version does not support the rule '\(definition.rule)'")
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
