import SteadfastQueue
import SteadfastRetry
import SteadfastTesting

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Puts queues under random load, and checks the fate of every task.
///
/// No task may be lost or performed too often, and every wait for a task must end.
///
///     swift run -c release Stress [memory | file | virtual]… [tasks=1000000] [seed=1]
///
/// In each round, several queues use one store one after another, with handlers of all kinds, and
/// with every control of tasks and queues called at random moments. The number of tasks applies to
/// each place. The program ends, and prints the seed, when a round breaks a promise or takes
/// longer than two minutes.
@main enum Stress {
  static func main() async throws {
    let arguments = CommandLine.arguments.dropFirst()
    let named = try arguments.filter { !$0.contains("=") }.map(Place.init(argument:))
    let places = named.isEmpty ? Place.allCases : named
    let taskCount = try number("tasks", in: arguments) ?? 1_000_000
    let seed = try number("seed", in: arguments) ?? 1
    try await Watchdog.whileWatching { watchdog in
      for place in places {
        try await runRounds(in: place, taskCount: taskCount, firstSeed: seed, watchdog)
      }
    }
  }

  /// Repeats rounds until they have added this number of tasks.
  private static func runRounds(
    in place: Place,
    taskCount: Int,
    firstSeed: Int,
    _ watchdog: Watchdog
  ) async throws {
    var total = Tally()
    var seed = firstSeed
    var sizeAtTenth: Int?
    let start = ContinuousClock.now
    while total.tasks < taskCount {
      watchdog.startRound("\(place) seed=\(seed)")
      total.add(try await place.runRound(seed: UInt64(seed)))
      seed += 1
      if sizeAtTenth == nil, total.tasks >= taskCount / 10 { sizeAtTenth = residentBytes() }
    }
    let growth = (residentBytes() - (sizeAtTenth ?? 0)) / 1024
    print(
      "\(place): \(total.tasks) tasks, \(total.attempts) attempts, \(total.controls) controls, "
        + "\(total.queues) queues in \(seed - firstSeed) rounds, "
        + "\(start.duration(to: .now)); nothing lost, nothing hangs; "
        + "resident memory \(residentBytes() / 1024) KiB, \(growth) KiB more than after a tenth"
    )
  }

  private static func number(_ name: String, in arguments: some Sequence<String>) throws -> Int? {
    guard let argument = arguments.first(where: { $0.hasPrefix("\(name)=") }) else { return nil }
    guard let number = Int(argument.dropFirst(name.count + 1)), number >= 0 else {
      throw Violation("\(argument) is not a number; give \(name)=1000, for example")
    }
    return number
  }
}

/// The store and the clock of a round.
enum Place: String, CaseIterable {
  case memory, file, virtual

  init(argument: String) throws {
    guard let place = Place(rawValue: argument) else {
      throw Violation("'\(argument)' is not a place; give memory, file or virtual")
    }
    self = place
  }

  func runRound(seed: UInt64) async throws -> Tally {
    switch self {
    case .memory:
      let store = InMemoryStore()
      return try await Round(seed: seed, clock: ContinuousClock()) { store }.run()
    case .file:
      return try await Self.withTemporaryFile { url in
        try await Round(seed: seed, clock: ContinuousClock()) { JSONFileStore(at: url) }.run()
      }
    case .virtual:
      // A tenth of the rounds in virtual time use a file, and half of them a random order.
      let order: VirtualTime.Order = seed.isMultiple(of: 2) ? .inOrder : .shuffled(seed: seed)
      return try await withVirtualTime(order: order) { time in
        guard seed.isMultiple(of: 10) else {
          let store = InMemoryStore()
          return try await Round(seed: seed, clock: time.clock) { store }.run()
        }
        return try await Self.withTemporaryFile { url in
          try await Round(seed: seed, clock: time.clock) { JSONFileStore(at: url) }.run()
        }
      }
    }
  }

  private static func withTemporaryFile<Result>(
    _ body: (URL) async throws -> Result
  ) async throws -> Result {
    let folder = FileManager.default.temporaryDirectory
      .appendingPathComponent("steadfast-stress-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    return try await body(folder.appendingPathComponent("queue.jsonl"))
  }
}

/// The counts of a round.
struct Tally {
  var tasks = 0
  var attempts = 0
  var controls = 0
  var queues = 0

  mutating func add(_ other: Tally) {
    tasks += other.tasks
    attempts += other.attempts
    controls += other.controls
    queues += other.queues
  }
}

/// A broken promise, or an invalid argument.
struct Violation: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
