/// The name of something that must hold when an attempt begins, such as that there is a network.
///
/// A task names its conditions in ``TaskOptions/conditions``. The queue is told which conditions
/// hold, by ``TaskQueue/setCondition(_:holds:)`` or by a ``ConditionMonitor``. Until all conditions
/// of a task hold, it waits. It is not attempted, and costs nothing.
///
/// A name of your own is a string literal: `requires: ["charging"]`.
public struct TaskCondition: RawRepresentable, Hashable, Sendable {
  /// The name.
  public let rawValue: String

  /// Makes a condition of its name.
  public init(rawValue: String) { self.rawValue = rawValue }

  /// There is a route to the internet, as ``NetworkMonitor`` tells.
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
  /// Makes a condition of its name.
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
