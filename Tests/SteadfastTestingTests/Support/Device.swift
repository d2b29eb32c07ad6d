import Dispatch

/// A device outside of every virtual time, such as a disk; the duration of its work varies.
final class Device: Sendable {
  private let trace: Trace

  init(_ trace: Trace) { self.trace = trace }

  /// Performs work that passes through other threads `hops` times.
  func performWork(named name: String, hops: Int) async {
    trace.note("\(name) begins")
    for _ in 0..<hops { await realDelay() }
    trace.note("\(name) ends")
  }
}
