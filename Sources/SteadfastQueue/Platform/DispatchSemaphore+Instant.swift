import Dispatch

extension DispatchSemaphore {
  /// Waits for a signal, or until an instant if there is one.
  func wait(until instant: ContinuousClock.Instant?) {
    guard let instant else { return wait() }
    let (seconds, attoseconds) = ContinuousClock.now.duration(to: instant).components
    let nanoseconds = seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    // Where an integer has 32 bits, the wait lasts two seconds at most, and another one follows.
    _ = wait(timeout: .now() + .nanoseconds(Int(clamping: max(0, nanoseconds) + 1)))
  }
}
