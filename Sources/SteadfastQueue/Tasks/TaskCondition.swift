/// The name of a condition that must hold when an attempt starts, such as network access.
///
/// A task lists its conditions in ``TaskOptions/conditions``, and is not attempted until all of
/// them hold. ``TaskQueue/setCondition(_:holds:)`` or a ``ConditionMonitor`` reports to the queue
/// which conditions hold.
///
/// You can write a condition of your own as a string literal, as in
/// `TaskOptions(conditions: ["charging"])`.
public struct TaskCondition: RawRepresentable, Hashable, Sendable {
  /// The name.
  public let rawValue: String

  /// Makes a condition from its name.
  public init(rawValue: String) { self.rawValue = rawValue }

  /// There is a route to the internet, as reported by ``NetworkMonitor``.
  public static let network: TaskCondition = "network"
}

extension TaskCondition {
  /// Returns whether the UTF-8 bytes of two names are the same.
  public static func == (left: TaskCondition, right: TaskCondition) -> Bool {
    left.rawValue.isExactly(right.rawValue)
  }

  /// Hashes the name.
  public func hash(into hasher: inout Hasher) { hasher.combine(rawValue) }
}

extension TaskCondition: ExpressibleByStringLiteral, CustomStringConvertible {
  /// Makes a condition from its name.
  public init(stringLiteral name: String) { self.init(rawValue: name) }

  /// The name.
  public var description: String { rawValue }
}

extension TaskCondition: Comparable {
  /// Orders conditions by the UTF-8 bytes of their names.
  public static func < (left: TaskCondition, right: TaskCondition) -> Bool {
    left.rawValue.utf8.lexicographicallyPrecedes(right.rawValue.utf8)
  }
}
