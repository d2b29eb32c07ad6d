import Synchronization

/// What happened, in order, as several tasks tell it.
final class Trace: Sendable {
  private let lines = Mutex<[String]>([])

  var entries: [String] { lines.withLock { $0 } }

  func note(_ entry: String) { lines.withLock { $0.append(entry) } }
}
