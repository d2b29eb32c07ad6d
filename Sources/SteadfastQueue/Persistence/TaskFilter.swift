#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Which tasks to look up.
///
/// Every criterion that is given must hold.
public struct TaskFilter: Sendable, Hashable {
  /// Only these identities.
  public var ids: Set<TaskID>?
  /// Only these names.
  public var names: Set<String>?
  /// All but these names.
  public var excludedNames: Set<String>
  /// Only these states.
  public var states: Set<TaskState>?
  /// Only these unique keys; a task bears its key still when one that has replaced it while it was
  /// performed bears it too.
  public var uniqueKeys: Set<String>?
  /// Only tasks with at least one of these tags.
  public var tags: Set<String>?
  /// Only tasks that their last attempt has put off (``TaskRecord/isPutOff``), or only others.
  public var isPutOff: Bool?
  /// Only tasks whose ``TaskRecord/availableDate`` is in the range, which its upper bound is not.
  public var availableDates: Range<Date>?

  /// Makes a filter; without criteria it lets every task through.
  public init(
    ids: Set<TaskID>? = nil,
    names: Set<String>? = nil,
    excludedNames: Set<String> = [],
    states: Set<TaskState>? = nil,
    uniqueKeys: Set<String>? = nil,
    tags: Set<String>? = nil,
    isPutOff: Bool? = nil,
    availableDates: Range<Date>? = nil
  ) {
    self.ids = ids
    self.names = names
    self.excludedNames = excludedNames
    self.states = states
    self.uniqueKeys = uniqueKeys
    self.tags = tags
    self.isPutOff = isPutOff
    self.availableDates = availableDates
  }

  /// Tasks that have not ended.
  public static let unfinished = TaskFilter(states: TaskState.unfinished)
  /// Tasks that were given up and kept.
  public static let deadLetters = TaskFilter(states: [.abandoned])
  /// Tasks that wait for a retry, or for the end of a snooze; not those that wait for a date that was
  /// chosen.
  public static let retrying = TaskFilter(states: [.waiting], isPutOff: true)

  /// The filter that lets only those through that are in one of these states too.
  func narrowed(to states: Set<TaskState>) -> TaskFilter {
    var filter = self
    filter.states = self.states?.intersection(states) ?? states
    return filter
  }

  /// Whether a task is let through.
  public func matches(_ task: TaskRecord) -> Bool {
    (ids?.contains(task.id) ?? true)
      && (names?.contains(task.name) ?? true)
      && !excludedNames.contains(task.name)
      && (states?.contains(task.state) ?? true)
      && (uniqueKeys.map { keys in task.uniqueKey.map(keys.contains) ?? false } ?? true)
      && (tags.map { !$0.isDisjoint(with: task.tags) } ?? true)
      && (isPutOff.map { $0 == task.isPutOff } ?? true)
      && (availableDates?.contains(task.availableDate) ?? true)
  }
}
