import Dispatch

/// Outside of every virtual time, as a disk is: takes more or less time for the same work.
final class Device: Sendable {
  private let trace: Trace

  init(_ trace: Trace) { self.trace = trace }

  /// Answers after a detour over other threads, the longer the more hops.
  func work(_ name: String, hops: Int) async {
    trace.note("\(name) begins")
    for _ in 0..<hops { await realDelay() }
    trace.note("\(name) ends")
  }
}
