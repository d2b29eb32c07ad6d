import Dispatch

/// A device outside of every virtual time, like a disk, whose work takes varying time.
final class Device: Sendable {
  private let trace: Trace

  init(_ trace: Trace) { self.trace = trace }

  /// Returns after `hops` detours through other threads.
  func work(_ name: String, hops: Int) async {
    trace.note("\(name) begins")
    for _ in 0..<hops { await realDelay() }
    trace.note("\(name) ends")
  }
}
