public import SystemFoundation

/// The criteria for the tasks to look up.
///
/// A task matches if it meets every criterion that is set. By default, the filter finds only tasks
/// that belong to no group: see ``queue``.
///
/// Names, keys, tags and metadata are the same only if their UTF-8 bytes are. But neither a Swift
/// set nor the keys of a dictionary can contain two strings that `==` considers equal although
/// their bytes differ.
public struct TaskFilter: Sendable, Hashable {
  /// Only tasks with these IDs.
  public var ids: Set<TaskID>?
  /// Only tasks of this queue (``TaskRecord/queue``), or `nil` for the tasks of all queues.
  ///
  /// In a call of a queue, an empty name, which is the default, means that queue.
  public var queue: String?
  /// Only tasks with these names.
  public var names: Set<String>?
  /// Only tasks with other names than these.
  public var excludedNames: Set<String>
  /// Only tasks in these states.
  public var states: Set<TaskState>?
  /// Only tasks with these unique keys.
  public var uniqueKeys: Set<String>?
  /// Only tasks with these order keys.
  public var orderKeys: Set<String>?
  /// Only tasks that require at least one condition that is not in this set.
  public var unmetBy: Set<TaskCondition>?
  /// Only tasks that a program with these handlers can't perform: tasks whose name is not a key of
  /// the dictionary, and tasks whose payload version (``StoredPayload/version``) is greater than
  /// the value for their name.
  ///
  /// Such tasks wait for a handler, or for a newer version of the program.
  public var unhandledBy: [String: Int]?
  /// Only tasks with at least one of these tags.
  public var tags: Set<String>?
  /// Only tasks whose metadata has all of these keys, with these values.
  public var metadata: [String: String]?
  /// If `true`, only tasks that wait for a retry or for the end of a snooze; if `false`, only other
  /// tasks (``TaskRecord/isPostponed``).
  public var isPostponed: Bool?
  /// Only tasks whose ``TaskRecord/availableDate`` is in this range.
  public var availableDates: Range<Date>?
  /// Only tasks that have failed, and whose ``TaskRecord/failedDate`` is in this range.
  public var failedDates: Range<Date>?

  /// If `true`, only tasks whose memory is not empty; if `false`, only tasks whose memory is empty
  /// (``TaskRecord/memorySize``).
  public var remembers: Bool?
  /// If `true`, only tasks with a command that is still to be carried out; if `false`, only tasks
  /// without one (``TaskRecord/command``).
  public var hasCommand: Bool?

  /// Makes a filter; without criteria, every task of the queue matches.
  public init(
    ids: Set<TaskID>? = nil,
    queue: String? = "",
    names: Set<String>? = nil,
    excludedNames: Set<String> = [],
    states: Set<TaskState>? = nil,
    uniqueKeys: Set<String>? = nil,
    orderKeys: Set<String>? = nil,
    unmetBy conditions: Set<TaskCondition>? = nil,
    unhandledBy versions: [String: Int]? = nil,
    tags: Set<String>? = nil,
    metadata: [String: String]? = nil,
    isPostponed: Bool? = nil,
    availableDates: Range<Date>? = nil,
    failedDates: Range<Date>? = nil,
    remembers: Bool? = nil,
    hasCommand: Bool? = nil
  ) {
    self.ids = ids
    self.queue = queue
    self.names = names
    self.excludedNames = excludedNames
    self.states = states
    self.uniqueKeys = uniqueKeys
    self.orderKeys = orderKeys
    unmetBy = conditions
    unhandledBy = versions
    self.tags = tags
    self.metadata = metadata
    self.isPostponed = isPostponed
    self.availableDates = availableDates
    self.failedDates = failedDates
    self.remembers = remembers
    self.hasCommand = hasCommand
  }

  /// Tasks that have not ended.
  public static let unfinished = TaskFilter(states: TaskState.unfinished)
  /// Tasks that were abandoned and are retained.
  public static let deadLetters = TaskFilter(states: [.abandoned])
  /// Tasks that wait for a retry, or for the end of a snooze.
  ///
  /// Tasks that wait for a date that the caller chose are not included.
  public static let retrying = TaskFilter(states: [.waiting], isPostponed: true)

  /// Returns the filter, restricted to tasks in these states.
  func narrowed(to states: Set<TaskState>) -> TaskFilter {
    var filter = self
    filter.states = self.states?.intersection(states) ?? states
    return filter
  }

  /// Returns whether a task matches the filter.
  public func matches(_ task: TaskRecord) -> Bool {
    (ids?.contains(task.id) ?? true)
      && (queue?.isExactly(task.queue) ?? true)
      && (names?.containsExactly(task.name) ?? true)
      && !excludedNames.containsExactly(task.name)
      && (states?.contains(task.state) ?? true)
      && (uniqueKeys.map { keys in task.uniqueKey.map(keys.containsExactly) ?? false } ?? true)
      && (orderKeys.map { keys in task.orderKey.map(keys.containsExactly) ?? false } ?? true)
      && (unmetBy.map { !task.conditions.isSubset(of: $0) } ?? true)
      && (unhandledBy.map { versions in
        versions[exactly: task.name].map { task.payload.version > $0 } ?? true
      } ?? true)
      && (tags.map { task.tags.contains(where: $0.containsExactly) } ?? true)
      && (metadata.map(task.metadata.containsExactly) ?? true)
      && (isPostponed.map { $0 == task.isPostponed } ?? true)
      && (availableDates?.contains(task.availableDate) ?? true)
      && (failedDates.map { task.failedDate.map($0.contains) ?? false } ?? true)
      && (remembers.map { $0 == (task.memorySize > 0) } ?? true)
      && (hasCommand.map { $0 == (task.command != nil) } ?? true)
  }
}

extension [TaskID] {
  /// The IDs, split into slices that are short enough for one look-up.
  ///
  /// Databases limit the number of parameters of a statement.
  var lookUpPages: [ArraySlice<TaskID>] {
    stride(from: 0, to: count, by: 256).map { self[$0...].prefix(256) }
  }
}
