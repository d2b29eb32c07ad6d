import Synchronization

/// A store that lives as long as the process: for queues whose tasks need not outlast it, and for
/// tests.
///
/// Every call returns at once, without suspending.
public final class InMemoryStore: Persistence {
  private let table = Mutex(TaskTable())

  /// Makes an empty store.
  public init() {}

  /// `true`: there is nothing to wait for.
  public var appliesAtOnce: Bool { true }

  /// Keeps a batch of changes and returns an outcome for each.
  ///
  /// Never throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    table.withLock { $0.apply(batch) }
  }

  /// Leases the first available tasks.
  ///
  /// Never throws.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    table.withLock { $0.claim(request) }
  }

  /// The tasks that a filter lets through.
  ///
  /// Never throws.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    table.withLock { $0.tasks(matching: filter, after: id, limit: limit) }
  }

  /// How many tasks a filter lets through.
  ///
  /// Never throws.
  public func count(matching filter: TaskFilter) async throws -> Int {
    table.withLock { $0.count(matching: filter) }
  }
}

extension Persistence where Self == InMemoryStore {
  /// A store that lives as long as the process.
  public static var inMemory: InMemoryStore { InMemoryStore() }
}
