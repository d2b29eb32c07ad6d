import Synchronization

/// A number that any task may change.
public final class Counter: Sendable {
  private let number = Mutex(0)

  /// Makes a counter at zero.
  public init() {}

  /// The number now.
  public var value: Int { number.withLock { $0 } }

  /// Adds to the number, and returns what it is then.
  @discardableResult public func add(_ difference: Int) -> Int {
    number.withLock { number in
      number += difference
      return number
    }
  }
}
