/// A look-up in slices: a caller that guards the table with a lock gives it up between them.
///
/// Each slice looks at no more tasks than `sliceSize`. A task looks as it did in the slice that met
/// it.
struct TaskLookUp: Sendable {
  static let sliceSize = 512

  /// Where the tasks come from.
  enum Source: Sendable {
    /// All tasks after this one.
    case table(after: TaskID?)
    /// All tasks with these keys.
    ///
    /// The keys before `next` have been looked up. The IDs of their tasks gather in `found`, and
    /// are the next source.
    case keys([String], next: Int, found: Set<TaskID>)
    /// These tasks, in order. The ones before `next` have been looked at.
    case ids([TaskID], next: Int)
  }

  let filter: TaskFilter
  let limit: Int
  /// The look-up finds only tasks after this one.
  private let first: TaskID?
  private let keepsRecords: Bool
  var source: Source
  /// The tasks that were found, in the order of their IDs.
  private(set) var records: [TaskRecord] = []
  /// How many tasks were found.
  private(set) var count = 0
  var hasBegun = false
  var isOver: Bool

  /// Makes a look-up of a page of tasks.
  init(_ filter: TaskFilter, after id: TaskID?, limit: Int) {
    self.init(filter, after: id, limit: limit, keepsRecords: true)
  }

  /// Makes a look-up that counts tasks.
  init(counting filter: TaskFilter) {
    self.init(filter, after: nil, limit: .max, keepsRecords: false)
  }

  private init(_ filter: TaskFilter, after id: TaskID?, limit: Int, keepsRecords: Bool) {
    self.filter = filter
    self.limit = limit
    self.keepsRecords = keepsRecords
    first = id
    isOver = limit <= 0
    if let ids = filter.ids {
      source = .ids(Self.inOrder(ids, after: id), next: 0)
    } else if let keys = filter.uniqueKeys {
      source = .keys(Array(keys), next: 0, found: [])
    } else {
      source = .table(after: id)
    }
  }

  private static func inOrder(_ ids: Set<TaskID>, after first: TaskID?) -> [TaskID] {
    (first.map { first in ids.filter { $0 > first } } ?? ids).sorted()
  }

  /// Restricts the rest of the look-up to these tasks.
  mutating func goOn(with ids: Set<TaskID>) {
    source = .ids(Self.inOrder(ids, after: first), next: 0)
  }

  /// Adds a task of a slice to the result, if it matches the filter.
  ///
  /// The task is not one whose insertion is still staged.
  mutating func meet(_ record: TaskRecord) {
    guard !isOver, filter.matches(record) else { return }
    count += 1
    if keepsRecords { records.append(record) }
    isOver = count >= limit
  }
}
