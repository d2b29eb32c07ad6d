extension VirtualClock {
  /// A point in the time of a ``VirtualClock``, as an offset from the clock's beginning.
  public struct Instant: InstantProtocol, CustomStringConvertible {
    /// The time since the clock's beginning; negative for an instant before it.
    public var offset: Duration

    /// Makes the instant at this offset from the clock's beginning.
    public init(offset: Duration = .zero) { self.offset = offset }

    /// Returns the instant this much later; it saturates at the last and the first instant.
    public func advanced(by duration: Duration) -> Instant {
      let (sum, overflow) = offset.attoseconds.addingReportingOverflow(duration.attoseconds)
      guard overflow else { return Instant(offset: Duration(attoseconds: sum)) }
      return duration < .zero ? .first : .last
    }

    /// Returns the time from this instant to the other, or the nearest that a `Duration` can hold.
    public func duration(to other: Instant) -> Duration {
      let (difference, overflow) =
        other.offset.attoseconds.subtractingReportingOverflow(offset.attoseconds)
      guard overflow else { return Duration(attoseconds: difference) }
      return other < self ? Instant.first.offset : Instant.last.offset
    }

    /// The offset in seconds, such as `60.0 seconds`.
    public var description: String { offset.description }

    /// Returns whether the left instant comes before the right one.
    public static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }

    static let first = Instant(offset: Duration(attoseconds: .min))
    static let last = Instant(offset: Duration(attoseconds: .max))
  }
}

extension VirtualClock {
  /// A task that sleeps on a ``VirtualClock``.
  public struct PendingSleep: Sendable, Hashable {
    /// The instant at which the task wakes.
    public let deadline: Instant
    /// The name of the task, if it has one and the platform can tell.
    public let taskName: String?
  }
}
