import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Makes what a queue draws at random.
///
/// It draws everything from the configuration's randomness, so that a seed repeats it.
struct Generators: ~Copyable, Sendable {
  private let jitter: Mutex<SplitMix64>
  private let ids: Mutex<TaskIDGenerator>
  private let randomness: Randomness

  init(_ randomness: Randomness) {
    jitter = Mutex(randomness.makeGenerator())
    ids = Mutex(TaskIDGenerator(randomness))
    self.randomness = randomness
  }

  /// Makes a generator for one verdict, so that no lock is held while the user's backoff draws.
  func makeGenerator() -> SplitMix64 { SplitMix64(seed: jitter.withLock { $0.next() }) }

  /// Makes a token that can't be guessed, unless the randomness is seeded.
  func makeToken(of id: TaskID) -> TaskToken {
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

  /// Returns an upper limit for the IDs made here, and for all that are made before a date.
  func latestID(before date: Date) -> TaskID { ids.withLock { $0.latest(before: date) } }
}
