import Synchronization

extension VirtualClock {
  /// Suspends for a duration of this clock, like ``sleep(until:tolerance:)``.
  ///
  /// In a task that belongs to a ``VirtualTime`` but does not run on it, because it was started
  /// with `Task { }`, this method throws at once: it would be left to chance whether the time moves
  /// before or after the sleep begins. Tasks on the main actor may sleep, because the virtual time
  /// waits for them.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it was before; a
  ///   ``VirtualTimeError`` with the code ``VirtualTimeError/Code/sleepOutside`` in a task that
  ///   does not run on its virtual time, which then ends with that error, too.
  public func sleep(for duration: Duration, tolerance: Duration? = nil) async throws {
    if let time = VirtualTime.current, time.clock === self, !Self.isMainActor(#isolation),
      time.jobs.state.withLock({ $0.isLeft(by: .current) })
    {
      let error = VirtualTimeError.sleepOutside(time)
      time.jobs.state.withLock { $0.note(error) }
      throw error
    }
    try await sleep(until: now.advanced(by: duration), tolerance: tolerance)
  }

  // Swift 6.3.1 generates invalid code for the comparison if it is inlined into an async function.
  @inline(never)
  private static func isMainActor(_ isolation: (any Actor)?) -> Bool {
    isolation === MainActor.shared
  }
}
