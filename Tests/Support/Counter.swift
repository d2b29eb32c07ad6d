import Synchronization

/// A number that several tasks can change concurrently.
public final class Counter: Sendable {
  private let number = Mutex(0)

  /// Creates a counter at zero.
  public init() {}

  /// The current number.
  public var value: Int { number.withLock { $0 } }

  /// Adds to the number, and returns the sum.
  @discardableResult public func add(_ difference: Int) -> Int {
    number.withLock { number in
      number += difference
      return number
    }
  }
}
