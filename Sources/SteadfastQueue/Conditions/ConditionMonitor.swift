/// Tells whether a condition holds, now and whenever that changes.
public protocol ConditionMonitor: Sendable {
  /// Returns the values from now on: first whether the condition holds now, then each change.
  func values() -> AsyncStream<Bool>
}
