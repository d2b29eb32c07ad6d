import Dispatch

/// A simulated device, such as a disk, that works outside of every virtual time.
///
/// The duration of the work varies.
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
