import SteadfastRetry
import Synchronization

/// A thread-safe generator of random numbers from a seed.
public final class Dice: Sendable {
  private let generator: Mutex<SplitMix64>

  /// Creates dice; equal seeds give equal numbers.
  public init(seed: UInt64) { generator = Mutex(SplitMix64(seed: seed)) }

  /// Returns a random number.
  public func next() -> UInt64 { generator.withLock { $0.next() } }

  /// Returns a random number in a range.
  public func number(_ range: ClosedRange<Int>) -> Int {
    generator.withLock { Int.random(in: range, using: &$0) }
  }

  /// Returns `true` in `count` of `total` draws, on average.
  public func happens(_ count: Int, in total: Int) -> Bool { number(1...total) <= count }

  /// Returns a random element of a nonempty array.
  public func pick<Choice>(_ choices: [Choice]) -> Choice { choices[number(0...choices.count - 1)] }

  /// Returns separate dice, so that the numbers of a task don't depend on the speed of other tasks.
  public func split() -> Dice { Dice(seed: next()) }
}
