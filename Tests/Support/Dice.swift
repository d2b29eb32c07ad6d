import SteadfastRetry
import Synchronization

/// Random numbers from a seed, for many tasks that draw at the same time.
public final class Dice: Sendable {
  private let generator: Mutex<SplitMix64>

  /// Makes dice that draw the same for the same seed.
  public init(seed: UInt64) { generator = Mutex(SplitMix64(seed: seed)) }

  /// Any number.
  public func next() -> UInt64 { generator.withLock { $0.next() } }

  /// A number of a range.
  public func number(_ range: ClosedRange<Int>) -> Int {
    generator.withLock { Int.random(in: range, using: &$0) }
  }

  /// Returns `true` in `count` of `total` draws, on average.
  public func happens(_ count: Int, in total: Int) -> Bool { number(1...total) <= count }

  /// Draws one of these, of which there is at least one.
  public func pick<Choice>(_ choices: [Choice]) -> Choice { choices[number(0...choices.count - 1)] }

  /// Other dice, so that what one task draws does not depend on how fast another one is.
  public func split() -> Dice { Dice(seed: next()) }
}
