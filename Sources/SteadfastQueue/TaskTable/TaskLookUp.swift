/// A look-up in slices: whoever guards a table with a lock lets go of it between them.
///
/// Each slice looks at no more tasks than `sliceSize`. What a task looks like is that of the slice
/// which met it.
struct TaskLookUp: Sendable {
  static let sliceSize = 512

  /// Where the tasks come from.
  enum Source: Sendable {
    /// All tasks after this one.
    case table(after: TaskID?)
    /// Those that bear these keys, of which the ones before the number have been asked for; their
    /// identities gather, and are the next source.
    case keys([String], next: Int, found: Set<TaskID>)
    /// These, in order; the ones before the number have been looked at.
    case ids([TaskID], next: Int)
  }

  let filter: TaskFilter
  let limit: Int
  /// Only tasks after this one are looked for.
  private let first: TaskID?
  private let keepsRecords: Bool
  var source: Source
  /// The tasks that were found, in the order of their identities.
  private(set) var records: [TaskRecord] = []
  /// How many they are.
  private(set) var count = 0
  var hasBegun = false
  var isOver: Bool

  /// A page of tasks.
  init(_ filter: TaskFilter, after id: TaskID?, limit: Int) {
    self.init(filter, after: id, limit: limit, keepsRecords: true)
  }

  /// How many there are.
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

  /// Looks at these tasks from now on, and at no others.
  mutating func goOn(with ids: Set<TaskID>) {
    source = .ids(Self.inOrder(ids, after: first), next: 0)
  }

  /// A task was met that is not being added.
  mutating func meet(_ record: TaskRecord) {
    guard !isOver, filter.matches(record) else { return }
    count += 1
    if keepsRecords { records.append(record) }
    isOver = count >= limit
  }
}
