public import SystemFoundation

/// The number of tasks in a store, by queue, name and state, at one date.
///
/// ``TaskQueue/census(maxAge:)`` and ``TaskQueueGroup/census(maxAge:)`` return it. It is fast
/// even with a million tasks, so a page of numbers or an alarm can ask regularly.
public struct TaskCensus: Sendable, Hashable {
  /// The tasks of one queue that have the same name and are in the same state.
  public struct Row: Sendable, Hashable {
    /// The tasks' queue (``TaskRecord/queue``).
    public var queue: String
    /// The tasks' name.
    public var name: String
    /// The tasks' state.
    public var state: TaskState
    /// The number of tasks.
    public var count: Int
    /// The number of waiting tasks whose ``TaskRecord/availableDate`` has come; 0 in another state.
    ///
    /// Some of them may still wait for another task, a condition, or the end of a pause.
    public var due: Int
    /// The number of waiting tasks that were postponed, by a failure or by a snooze
    /// (``TaskFilter/retrying``); 0 in another state.
    ///
    /// A task whose date has come counts until it succeeds, or is restarted or rescheduled. So it
    /// may be due, too.
    public var retrying: Int
    /// The earliest ``TaskRecord/availableDate`` of the tasks that are due; `nil` if none is.
    public var oldestDue: Date?

    /// Makes a row.
    public init(
      queue: String,
      name: String,
      state: TaskState,
      count: Int,
      due: Int = 0,
      retrying: Int = 0,
      oldestDue: Date? = nil
    ) {
      self.queue = queue
      self.name = name
      self.state = state
      self.count = count
      self.due = due
      self.retrying = retrying
      self.oldestDue = oldestDue
    }

    /// Makes the row of one task, which is due if its date has come at `now`.
    public init(counting task: TaskRecord, at now: Date) {
      let isWaiting = task.state == .waiting
      let isDue = isWaiting && task.availableDate <= now
      self.init(
        queue: task.queue,
        name: task.name,
        state: task.state,
        count: 1,
        due: isDue ? 1 : 0,
        retrying: isWaiting && task.isPostponed ? 1 : 0,
        oldestDue: isDue ? task.availableDate : nil
      )
    }

    fileprivate func precedes(_ other: Row) -> Bool {
      for (own, others) in [
        (queue, other.queue), (name, other.name), (state.rawValue, other.state.rawValue),
      ] where !own.isExactly(others) {
        return own.utf8.lexicographicallyPrecedes(others.utf8)
      }
      return false
    }

    fileprivate mutating func add(_ other: Row) {
      count += other.count
      due += other.due
      retrying += other.retrying
      oldestDue = [oldestDue, other.oldestDue].compactMap(\.self).min()
    }
  }

  /// The date at which the tasks were counted, and by which some of them were due.
  public let date: Date
  /// The rows with any tasks, in the order of their queues, then names, then states.
  ///
  /// Strings, and the raw values of states, are ordered by their UTF-8 bytes.
  public let rows: [Row]

  /// Makes a census.
  ///
  /// - Parameters:
  ///   - date: The date at which the tasks were counted.
  ///   - rows: The rows in any order. Rows with the same queue, name and state are added together,
  ///     and a row without tasks is left out.
  public init(date: Date, rows: some Sequence<Row>) {
    var added: [Row] = []
    for row in rows.sorted(by: { $0.precedes($1) }) {
      if let last = added.last, !last.precedes(row) {
        added[added.count - 1].add(row)
      } else {
        added.append(row)
      }
    }
    self.date = date
    self.rows = added.filter { $0.count > 0 }
  }

  /// Returns the rows that satisfy a condition.
  func filtered(_ isIncluded: (Row) -> Bool) -> TaskCensus {
    TaskCensus(date: date, rows: rows.filter(isIncluded))
  }
}
