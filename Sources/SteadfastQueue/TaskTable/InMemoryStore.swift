import Synchronization
public import SystemFoundation

/// A store in memory, which lasts as long as the process.
///
/// Use it in tests, and for queues whose tasks need not survive the process. Every call returns at
/// once, without suspending.
public final class InMemoryStore: Persistence, UnsharedStore {
  private struct State {
    var table = TaskTable()
    var isDestroyed = false
  }

  private let state = Mutex(State())
  package let use: (any StoreUse)? = ExclusiveUse()

  /// Makes an empty store.
  public init() {}

  /// `true`, because a change in memory takes effect before the call returns.
  public var appliesAtOnce: Bool { true }

  /// Applies a batch of changes and returns an outcome for each.
  ///
  /// - Throws: A ``TaskQueueError`` if a change is invalid, or if the store was destroyed.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    for change in batch { try change.checkForm() }
    return try withTable { $0.apply(batch) }
  }

  /// Leases the first available tasks.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try withTable { $0.claim(request) }
  }

  /// Returns the tasks that match a filter.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    var lookUp = TaskLookUp(filter, after: id, limit: limit, newestFirst: newestFirst)
    while !lookUp.isOver { try withTable { $0.advance(&lookUp) } }
    return lookUp.records
  }

  /// Returns the number of tasks that match a filter.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func count(matching filter: TaskFilter) async throws -> Int {
    if let count = try withTable({ $0.knownCount(matching: filter) }) { return count }
    var lookUp = TaskLookUp(counting: filter)
    while !lookUp.isOver { try withTable { $0.advance(&lookUp) } }
    return lookUp.count
  }

  /// Returns whether any task matches the filter.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    if let count = try withTable({ $0.knownCount(matching: filter) }) { return count > 0 }
    return try await !tasks(matching: filter, after: nil, limit: 1).isEmpty
  }

  /// Counts the tasks by queue, name and state, without visiting most of them.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func census(at now: Date) async throws -> TaskCensus {
    try withTable { $0.census(at: now) }
  }

  /// Returns the bytes that are stored under a name; `nil` if there are none.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func value(named name: String) async throws -> [UInt8]? {
    try withTable { $0.values[name] }
  }

  /// Returns the values whose names begin with a prefix, in the order of their names.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try withTable { $0.values.all(prefix: prefix) }
  }

  /// Returns the values that a task remembers; an empty memory if the task is not in the store.
  ///
  /// - Throws: A ``TaskQueueError`` if the store was destroyed.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try withTable { $0.memory(of: id) }
  }

  /// Removes all tasks and values; later calls of other methods throw.
  public func destroy() async throws {
    state.withLock { $0 = State(isDestroyed: true) }
  }

  private func withTable<Result: Sendable>(
    _ body: (inout TaskTable) -> Result
  ) throws(TaskQueueError) -> Result {
    try state.withLock { state throws(TaskQueueError) in
      guard !state.isDestroyed else {
        throw TaskQueueError(.destroyed, "the store was destroyed; make a new one")
      }
      return body(&state.table)
    }
  }
}

extension Persistence where Self == InMemoryStore {
  /// A store in memory, which lasts as long as the process.
  public static var inMemory: InMemoryStore { InMemoryStore() }
}
