import SteadfastRetry
import Synchronization
import SystemFoundation

/// Generates a queue's random values: jitter, IDs and tokens.
///
/// All of them come from the configuration's randomness, so a seed reproduces them.
final class Generators: Sendable {
  private let jitter: Mutex<SplitMix64>
  private let ids: Mutex<TaskIDGenerator>
  private let randomness: Randomness

  init(_ randomness: Randomness) {
    jitter = Mutex(randomness.makeGenerator())
    ids = Mutex(TaskIDGenerator(randomness))
    self.randomness = randomness
  }

  /// Makes a generator that a custom backoff can use without holding a lock.
  func makeGenerator() -> SplitMix64 { SplitMix64(seed: jitter.withLock { $0.next() }) }

  /// Makes a token that can't be guessed, unless the randomness is seeded.
  func makeToken(for id: TaskID) -> TaskToken {
    switch randomness {
    case .system:
      var system = SystemRandomNumberGenerator()
      return TaskToken(taskID: id, high: system.next(), low: system.next())
    default:
      var generator = makeGenerator()
      return TaskToken(taskID: id, high: generator.next(), low: generator.next())
    }
  }

  func nextID(at date: Date) -> TaskID { ids.withLock { $0.next(at: date) } }

  /// Returns an ID that is no less than any ID that this object has generated, and than any ID
  /// that another generator makes before a date.
  func latestID(before date: Date) -> TaskID { ids.withLock { $0.latest(before: date) } }
}

/// Generates identifiers that sort in the order of their generation.
///
/// The order holds even within a millisecond, and after the clock was set back.
///
/// The layout is RFC 9562's version 7 with its "fixed bit-length dedicated counter" (section 6.2,
/// method 1): 48 bits of milliseconds, 12 bits of counter, and 62 random bits. When the counter
/// overflows, the milliseconds advance before the clock does.
struct TaskIDGenerator: Sendable {
  private var random: SplitMix64
  private var milliseconds: UInt64 = 0
  private var counter: UInt64 = 0

  init(_ randomness: Randomness) { random = randomness.makeGenerator() }

  mutating func next(at date: Date) -> TaskID {
    let now = Self.milliseconds(of: date)
    if now > milliseconds {
      milliseconds = now
      counter = 0
    } else {
      counter += 1
      if counter > 0xFFF {
        milliseconds += 1
        counter = 0
      }
    }
    let high = Self.high(milliseconds, counter)
    let low = 0x8000_0000_0000_0000 | random.next() >> 2
    return TaskID(high: high, low: low)
  }

  /// Returns the greater of two IDs: the greatest that this generator may have generated so far,
  /// and the greatest that any generator can generate before a date.
  func latest(before date: Date) -> TaskID {
    max(TaskID(high: Self.high(milliseconds, counter), low: .max), Self.latest(before: date))
  }

  /// Returns the greatest ID that any generator can generate before a date.
  static func latest(before date: Date) -> TaskID {
    TaskID(high: high(milliseconds(of: date), 0) - 1, low: .max)
  }

  private static func high(_ milliseconds: UInt64, _ counter: UInt64) -> UInt64 {
    (milliseconds & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | counter
  }

  private static func milliseconds(of date: Date) -> UInt64 {
    let value = date.timeIntervalSince1970 * 1000
    return value > 0 ? UInt64(min(value, 281_474_976_710_655)) : 0
  }
}
