import Synchronization

/// Entries that any task can add, in order.
public final class Log<Entry: Sendable>: Sendable {
  private let list = Mutex<[Entry]>([])

  /// Creates an empty log.
  public init() {}

  /// All entries.
  public var entries: [Entry] { list.withLock { $0 } }

  /// The number of entries.
  public var count: Int { entries.count }

  /// Adds an entry.
  public func add(_ entry: Entry) { list.withLock { $0.append(entry) } }
}
