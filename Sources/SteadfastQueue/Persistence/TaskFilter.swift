#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The criteria for the tasks to look up.
///
/// A task must meet every criterion that is given.
public struct TaskFilter: Sendable, Hashable {
  /// Only tasks with these IDs.
  public var ids: Set<TaskID>?
  /// Only tasks with these names.
  public var names: Set<String>?
  /// Only tasks with other names than these.
  public var excludedNames: Set<String>
  /// Only tasks in these states.
  public var states: Set<TaskState>?
  /// Only tasks with these unique keys, in any state and with any role.
  public var uniqueKeys: Set<String>?
  /// Only tasks with these order keys, in any state.
  public var orderKeys: Set<String>?
  /// Only tasks that require a condition that is not among these.
  public var unmetBy: Set<TaskCondition>?
  /// Only tasks with at least one of these tags.
  public var tags: Set<String>?
  /// Only tasks that their last attempt has postponed (``TaskRecord/isPostponed``), or only others.
  public var isPostponed: Bool?
  /// Only tasks whose ``TaskRecord/availableDate`` is in this range, which excludes its upper
  /// bound.
  public var availableDates: Range<Date>?

  /// Makes a filter; without criteria, every task matches.
  public init(
    ids: Set<TaskID>? = nil,
    names: Set<String>? = nil,
    excludedNames: Set<String> = [],
    states: Set<TaskState>? = nil,
    uniqueKeys: Set<String>? = nil,
    orderKeys: Set<String>? = nil,
    unmetBy conditions: Set<TaskCondition>? = nil,
    tags: Set<String>? = nil,
    isPostponed: Bool? = nil,
    availableDates: Range<Date>? = nil
  ) {
    self.ids = ids
    self.names = names
    self.excludedNames = excludedNames
    self.states = states
    self.uniqueKeys = uniqueKeys
    self.orderKeys = orderKeys
    unmetBy = conditions
    self.tags = tags
    self.isPostponed = isPostponed
    self.availableDates = availableDates
  }

  /// Tasks that have not ended.
  public static let unfinished = TaskFilter(states: TaskState.unfinished)
  /// Tasks that were abandoned and are retained.
  public static let deadLetters = TaskFilter(states: [.abandoned])
  /// Tasks that wait for a retry, or for the end of a snooze.
  ///
  /// Tasks that wait for a date that was chosen are not among them.
  public static let retrying = TaskFilter(states: [.waiting], isPostponed: true)

  /// Returns the filter that matches only those of its tasks that are in one of these states too.
  func narrowed(to states: Set<TaskState>) -> TaskFilter {
    var filter = self
    filter.states = self.states?.intersection(states) ?? states
    return filter
  }

  /// Returns whether a task matches the filter.
  public func matches(_ task: TaskRecord) -> Bool {
    (ids?.contains(task.id) ?? true)
      && (names?.contains(task.name) ?? true)
      && !excludedNames.contains(task.name)
      && (states?.contains(task.state) ?? true)
      && (uniqueKeys.map { keys in task.uniqueKey.map(keys.contains) ?? false } ?? true)
      && (orderKeys.map { keys in task.orderKey.map(keys.contains) ?? false } ?? true)
      && (unmetBy.map { !task.conditions.isSubset(of: $0) } ?? true)
      && (tags.map { !$0.isDisjoint(with: task.tags) } ?? true)
      && (isPostponed.map { $0 == task.isPostponed } ?? true)
      && (availableDates?.contains(task.availableDate) ?? true)
  }
}
