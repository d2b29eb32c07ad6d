import Synchronization

/// A list of entries that several tasks can extend concurrently.
public final class Log<Entry: Sendable>: Sendable {
  private let list = Mutex<[Entry]>([])

  /// Creates an empty log.
  public init() {}

  /// All entries, in the order in which tasks added them.
  public var entries: [Entry] { list.withLock { $0 } }

  /// The number of entries.
  public var count: Int { entries.count }

  /// Adds an entry.
  public func add(_ entry: Entry) { list.withLock { $0.append(entry) } }
}
