extension VirtualClock {
  /// A point on a ``VirtualClock``'s time line: how far it is from the clock's beginning.
  public struct Instant: InstantProtocol, CustomStringConvertible {
    /// The time since the clock began; negative before it.
    public var offset: Duration

    /// The instant this far from the clock's beginning.
    public init(offset: Duration = .zero) { self.offset = offset }

    /// The instant this much later, or the last or first one there is: it never overflows.
    public func advanced(by duration: Duration) -> Instant {
      let (sum, overflow) = offset.attoseconds.addingReportingOverflow(duration.attoseconds)
      guard overflow else { return Instant(offset: Duration(attoseconds: sum)) }
      return duration < .zero ? .first : .last
    }

    /// The time from this instant to the other, as near as a `Duration` can tell it.
    public func duration(to other: Instant) -> Duration {
      let (difference, overflow) =
        other.offset.attoseconds.subtractingReportingOverflow(offset.attoseconds)
      guard overflow else { return Duration(attoseconds: difference) }
      return other < self ? Instant.first.offset : Instant.last.offset
    }

    /// The offset in seconds, as in `60.0 seconds`.
    public var description: String { offset.description }

    /// Whether the left instant comes before the right one.
    public static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }

    static let first = Instant(offset: Duration(attoseconds: .min))
    static let last = Instant(offset: Duration(attoseconds: .max))
  }
}

extension VirtualClock {
  /// A task that sleeps on a ``VirtualClock``.
  public struct PendingSleep: Sendable, Hashable {
    /// The instant at which it wakes.
    public let deadline: Instant
    /// The name of the task, if it was given one and the platform can tell.
    public let taskName: String?
  }
}
