import Synchronization

extension VirtualClock {
  /// Suspends for a duration of this clock; as ``sleep(until:tolerance:)``.
  ///
  /// A task that belongs to a ``VirtualTime`` and does not run on it, because it was started with
  /// `Task { }`, is told so at once: whether the time moves before it sleeps or after is left to
  /// chance. Tasks of the main actor are waited for.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it was before; a
  ///   ``VirtualTimeError`` with the code ``VirtualTimeError/Code/sleepOutside``, which its virtual time
  ///   ends with too.
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

  // Swift 6.3.1 makes invalid code of the comparison where it is inlined into an asynchronous function.
  @inline(never)
  private static func isMainActor(_ isolation: (any Actor)?) -> Bool {
    isolation === MainActor.shared
  }
}
