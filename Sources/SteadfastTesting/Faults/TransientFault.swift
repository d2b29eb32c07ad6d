public import SteadfastQueue

/// The error of a store that is unavailable for a while, as when a database fails over.
public struct TransientFault: PersistenceError, CustomStringConvertible {
  /// Makes an error.
  public init() {}

  /// `true`.
  public var isTransient: Bool { true }

  /// What happened.
  public var description: String { "the store is unavailable for a while" }
}
