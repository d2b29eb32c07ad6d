import Synchronization

/// What happened, in order, from any task.
public final class Log<Entry: Sendable>: Sendable {
  private let list = Mutex<[Entry]>([])

  /// Makes an empty log.
  public init() {}

  /// All that was added.
  public var entries: [Entry] { list.withLock { $0 } }

  /// How much was added.
  public var count: Int { entries.count }

  /// Notes what happened.
  public func add(_ entry: Entry) { list.withLock { $0.append(entry) } }
}
