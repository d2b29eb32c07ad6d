import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a queue decides beside its attempts: when to look for what.
struct Upkeep: Sendable {
  /// Decides when to remove ended tasks.
  var pruning: PruningSchedule
  /// Detects that the clock was set back.
  var dates = ClockStepDetector()
  /// Decides when to look for tasks without a handler.
  var notice = UnhandledNotice()
  /// Knows which conditions hold.
  var conditions = ConditionState()
  /// When the occurrences of schedules were last looked for.
  var schedulesDate: Date?
  /// The time of the current run, if it is limited.
  var budget: RunBudget?
  /// Whether a caller's change may be stored, though its call has failed.
  var isInDoubt = false

  init(_ configuration: TaskQueueConfiguration) { pruning = PruningSchedule(configuration) }
}

/// Detects that the system's clock was set back, by the dates that it is given.
struct ClockStepDetector: Sendable {
  /// How many seconds apart dates may be that several workers read at the same time.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether it was given no date yet.
  var isUnused: Bool { latest == nil }

  /// Returns whether dates in the store may lie in the future.
  ///
  /// They may if the date went back since the last call, or from a date that the queue has read in
  /// between. They may also on the first call: it has the first date of this process, and the clock
  /// of the process before it is unknown.
  mutating func wentBack(to now: Date, from read: Date = .distantPast) -> Bool {
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

  /// Makes the next call as the first one.
  ///
  /// What was to follow from the last one has failed, or the store has dates in the future again.
  mutating func forget() { latest = nil }
}

/// The latest date that a queue has read from its clock, to a second.
///
/// A date that is later by less than a second changes nothing, so that callers on all cores may
/// note theirs.
final class LatestDate: Sendable {
  private static let resolution = 1.0

  /// In seconds since 2001.
  private let latest = Atomic(-Double.infinity)

  var value: Date { Date(timeIntervalSinceReferenceDate: latest.load(ordering: .relaxed)) }

  func note(_ date: Date) {
    let seconds = date.timeIntervalSinceReferenceDate
    guard seconds > latest.load(ordering: .relaxed) + Self.resolution else { return }
    latest.store(seconds, ordering: .relaxed)
  }

  /// Forgets later dates, since the clock was set back to this one.
  func reset(to date: Date) {
    latest.store(date.timeIntervalSinceReferenceDate, ordering: .relaxed)
  }
}
