extension Clock where Duration == Swift.Duration {
  /// Suspends for the delay, however long it is, and leaves nothing behind when it is cut short.
  ///
  /// This package's sleeps for a duration go through this method. On a clock that is not one of the
  /// system's, it sleeps once on that clock, which decides what a cancelled sleep leaves behind.
  /// - Throws: `CancellationError` as soon as the task is cancelled, even if the clock does not.
  package nonisolated(nonsending) func wait(for delay: Duration) async throws {
    if let timer = SharedTimer.of(self) {
      try await timer.sleep(for: delay.sleepable)
    } else {
      try await sleep(for: delay.sleepable)
    }
    try Task.checkCancellation()
  }
}

extension Duration {
  /// This duration, or the longest one that every clock can sleep.
  ///
  /// Adding to an instant traps when it overflows, and the runtime counts nanoseconds in 64 bits.
  /// 2³² seconds, which are 136 years, overflow neither of them.
  package var sleepable: Duration { min(self, .seconds(Int64(1) << 32)) }
}
