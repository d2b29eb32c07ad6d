extension TaskQueue {
  /// The rank of a task among the available tasks: a higher one always goes first.
  ///
  /// Priority is strict: a task of low priority waits for as long as tasks of higher priority are
  /// available. Any integer is a priority.
  public struct Priority: RawRepresentable, Hashable, Comparable, Sendable,
    ExpressibleByIntegerLiteral, CustomStringConvertible
  {
    /// The rank; a higher one goes first.
    public let rawValue: Int

    /// Makes a priority of any rank.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Makes a priority of any rank.
    public init(integerLiteral value: Int) { self.init(rawValue: value) }

    /// After everything else: rank −10.
    public static let low = Priority(rawValue: -10)
    /// The default: rank 0.
    public static let normal = Priority(rawValue: 0)
    /// Before everything else: rank 10.
    public static let high = Priority(rawValue: 10)

    /// The rank.
    public var description: String { "\(rawValue)" }

    /// Returns whether the left priority goes after the right one.
    public static func < (left: Priority, right: Priority) -> Bool {
      left.rawValue < right.rawValue
    }
  }
}
