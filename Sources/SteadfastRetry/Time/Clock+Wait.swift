extension Clock where Duration == Swift.Duration {
  /// Suspends for the delay, however long it is, and leaves nothing behind when it is cut short.
  ///
  /// Every sleep of this package is one of these. On a clock that is not the system's own it is one
  /// sleep of that clock, whose affair it is what a cancelled sleep leaves behind.
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
  /// This duration, or the longest that every clock can sleep.
  ///
  /// An instant's addition traps when it overflows, and the runtime counts nanoseconds in 64 bits:
  /// 2³² seconds, 136 years, are within reach of both.
  package var sleepable: Duration { min(self, .seconds(Int64(1) << 32)) }
}
