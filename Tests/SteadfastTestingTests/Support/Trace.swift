import Synchronization

/// The events that several tasks report, in order.
final class Trace: Sendable {
  private let lines = Mutex<[String]>([])

  var entries: [String] { lines.withLock { $0 } }

  func note(_ entry: String) { lines.withLock { $0.append(entry) } }
}
