extension VirtualClock {
  /// A task that sleeps on a ``VirtualClock``.
  public struct PendingSleep: Sendable, Hashable {
    /// The instant at which it wakes.
    public let deadline: Instant
    /// The name of the task, if it was given one and the platform can tell.
    public let taskName: String?
  }
}
