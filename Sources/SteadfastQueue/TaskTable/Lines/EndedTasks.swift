#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The retained tasks of each queue and each state, in the order in which they ended.
///
/// The queues are given by their numbers.
/// Those that no pruning may remove yet are apart, so that a pruning need not visit them.
struct EndedTasks: Sendable {
  /// The tasks of one state.
  private struct Line: Sendable {
    var prunable = OrderedLine<TaskTable.Node>()
    /// The tasks that stay until a date, in the order of these dates.
    var staying = OrderedLine<TaskTable.DateNode>()
    /// The latest date of a pruning: tasks that stay until then became prunable.
    var releaseDate = Date.distantPast
  }

  private var lines: [[TaskState: Line]] = []
  /// How many prunings are staged and not yet committed.
  ///
  /// While there are any, it is not known which ended tasks stay.
  var stagedPrunes = 0

  /// Adds a task, which stays until a date if one is given.
  mutating func insert(_ node: TaskTable.Node, _ state: TaskState, in queue: Int, until date: Date?)
  {
    while lines.count <= queue { lines.append([:]) }
    guard let date else { return lines[queue][state, default: Line()].prunable.insert(node) }
    lines[queue][state, default: Line()].staying.insert(TaskTable.DateNode(date: date, node: node))
  }

  /// Removes a task, which stays until a date if one is given.
  ///
  /// - Returns: Whether the task was there.
  mutating func remove(
    _ node: TaskTable.Node,
    _ state: TaskState,
    in queue: Int,
    until date: Date?
  ) -> Bool {
    guard queue < lines.count else { return false }
    if let date,
      lines[queue][state]?.staying.remove(TaskTable.DateNode(date: date, node: node)) == true
    {
      return true
    }
    return lines[queue][state]?.prunable.remove(node) ?? false
  }

  private func line(_ state: TaskState, in queue: Int) -> Line? {
    queue < lines.count ? lines[queue][state] : nil
  }

  // MARK: Pruning

  /// Returns whether tasks became prunable by a later date than this, before the clock went back.
  func hasReleased(_ state: TaskState, in queue: Int, after now: Date) -> Bool {
    line(state, in: queue).map { $0.releaseDate > now } ?? false
  }

  /// The tasks that a pruning may remove, in the order in which they ended.
  func prunable(_ state: TaskState, in queue: Int) -> [TaskTable.Node] {
    line(state, in: queue)?.prunable.elements() ?? []
  }

  /// Makes the tasks prunable that stay until a date that has come.
  mutating func release(_ state: TaskState, in queue: Int, until now: Date) {
    guard queue < lines.count else { return }
    lines[queue][state]?.releaseDate = now
    while let first = lines[queue][state]?.staying.first, first.date <= now {
      lines[queue][state]?.staying.popFirst()
      lines[queue][state]?.prunable.insert(first.node)
    }
  }

  /// The task that ended first, of those that a pruning may remove.
  func first(_ state: TaskState, in queue: Int) -> TaskTable.Node? {
    line(state, in: queue)?.prunable.first
  }

  /// The number of tasks that a pruning may remove.
  func prunableCount(_ state: TaskState, in queue: Int) -> Int {
    line(state, in: queue)?.prunable.count ?? 0
  }

  /// All tasks of a state in all queues, in no order.
  func nodes(_ state: TaskState) -> [TaskTable.Node] {
    lines.compactMap { $0[state] }.flatMap { line in
      line.prunable.elements() + line.staying.elements().map(\.node)
    }
  }
}

extension TaskRecord {
  /// The date until which no pruning removes the task, which has ended; `nil` if one may.
  var prunableDate: Date? {
    holdsUpOthers || presentDependencies?.cause != nil
      ? Date(timeIntervalSinceReferenceDate: .infinity) : uniqueUntil
  }
}
