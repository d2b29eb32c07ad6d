import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A database under test.
protocol Database: Sendable {
  associatedtype Table: RawTable

  var name: String { get }
  /// Calls `body` with an open, empty store, and removes its tables afterwards.
  func withStore(_ body: (any Persistence, Place) async throws -> Void) async throws
  /// Opens the table of a store.
  func table(at place: Place) throws -> Table

  associatedtype Place: Sendable
}

/// Prepared statements for the table of a store, sent with the C library of the database.
///
/// The statements do only the work that tasks without keys and dependencies require. Only one
/// thread can use the table.
protocol RawTable {
  associatedtype Claimed

  /// Inserts tasks in one transaction.
  func insert(_ numbers: Range<Int>) throws
  /// Inserts tasks in the fastest way.
  func fill(_ count: Int) throws
  /// Claims the first tasks, and reads all of their columns, in one transaction.
  func claim(_ limit: Int) throws -> Claimed
  /// Removes claimed tasks in one transaction.
  func complete(_ claimed: Claimed) throws
  /// Makes claimed tasks available again.
  func release(_ claimed: Claimed) throws
}

private let workers = 8
private let producers = 64

extension Database {
  private func rowName(_ name: String) -> String { "\(self.name), \(name)" }

  /// Returns the rows of a store, each compared with raw statements for the same work.
  func benchmarks(few: Int = 2_000, many: Int = 8_000) -> [Benchmark] {
    let rawOne = rowName("raw: insert, 1 a commit")
    let rawMany = rowName("raw: insert, \(producers) a commit")
    let rawDrain = rowName("raw: claim \(workers), then remove them")
    let rawWhole = rowName("raw: insert, claim, remove")
    return [
      rawBenchmark(rawOne, few) { table, count in
        for number in 0..<count { try table.insert(number..<number + 1) }
      },
      storeEnqueueBenchmark("enqueue, 1 producer", few, against: rawOne, producers: 1),
      rawBenchmark(rawMany, many, Self.insertMany),
      storeEnqueueBenchmark(
        "enqueue, \(producers) producers",
        many,
        against: rawMany,
        producers: producers
      ),
      rawBenchmark(rawDrain, many, prepare: { try $0.fill($1) }, Self.claimAndComplete),
      storeDrainBenchmark("\(workers) workers, drain", many, against: rawDrain),
      rawBenchmark(rawWhole, many) { table, count in
        try Self.insertMany(table, count)
        try Self.claimAndComplete(table, count)
      },
      storeWholeBenchmark("\(producers) producers, \(workers) workers", many, against: rawWhole),
    ] + manyNamesBenchmarks()
  }

  /// Returns rows in which all tasks have different names or priorities, compared with a row in
  /// which all tasks have the same name and priority.
  private func manyNamesBenchmarks(_ count: Int = 12_000) -> [Benchmark] {
    let same = "drain \(count), all alike"
    return [
      manyNamesBenchmark(same, count, against: nil) { _ in ("task", 0) },
      manyNamesBenchmark("drain \(count), a name each", count, against: same) { ("task \($0)", 0) },
      manyNamesBenchmark("drain \(count), a priority each", count, against: same) { ("task", -$0) },
      manyNamesBenchmark("drain \(count), random priorities", count, against: same) {
        ("task", $0 * 7_919 % count)
      },
    ]
  }

  private func manyNamesBenchmark(
    _ name: String,
    _ iterations: Int,
    against baseline: String?,
    lane: @escaping @Sendable (Int) -> (name: String, priority: Int)
  ) -> Benchmark {
    Benchmark(rowName(name), against: baseline.map(rowName), iterations: iterations) {
      count,
      stopwatch in
      try await withStore { store, _ in
        let queue = Steadfast(store, workers: workers).queue
        await queue.registerFallback { _, _ in }
        try await withThrowingTaskGroup { group in
          for producer in 0..<producers {
            group.addTask {
              for number in stride(from: producer, to: count, by: producers) {
                let (name, priority) = lane(number)
                let options = TaskOptions(priority: TaskQueue.Priority(rawValue: priority))
                try await queue.enqueue(name: name, nil, options: options)
              }
            }
          }
          try await group.waitForAll()
        }
        try await stopwatch.measure { try await queue.runAvailable() }
      }
    }
  }

  private static func insertMany(_ table: Table, _ count: Int) throws {
    for first in stride(from: 0, to: count, by: producers) {
      try table.insert(first..<min(first + producers, count))
    }
  }

  private static func claimAndComplete(_ table: Table, _ count: Int) throws {
    for _ in 0..<count / workers { try table.complete(table.claim(workers)) }
  }

  private func rawBenchmark(
    _ name: String,
    _ iterations: Int,
    prepare: @escaping @Sendable (Table, Int) throws -> Void = { _, _ in },
    _ body: @escaping @Sendable (Table, Int) throws -> Void
  ) -> Benchmark {
    Benchmark(name, iterations: iterations) { count, stopwatch in
      try await withStore { store, place in
        // The raw statements need exclusive access to the database, as the store does.
        try await store.close()
        let table = try table(at: place)
        try prepare(table, count)
        try await stopwatch.measure { try body(table, count) }
      }
    }
  }

  private func storeEnqueueBenchmark(
    _ name: String,
    _ iterations: Int,
    against baseline: String,
    producers: Int
  ) -> Benchmark {
    Benchmark(rowName(name), against: baseline, iterations: iterations) { count, stopwatch in
      try await withStore { store, _ in
        let queue = Steadfast(store, workers: 1).queue
        try await stopwatch.measure {
          try await enqueueTasks(count, to: queue, producers: producers)
        }
      }
    }
  }

  private func storeDrainBenchmark(
    _ name: String,
    _ iterations: Int,
    against baseline: String
  ) -> Benchmark {
    Benchmark(rowName(name), against: baseline, iterations: iterations) { count, stopwatch in
      try await withStore { store, place in
        try table(at: place).fill(count)
        let queue = Steadfast(store, workers: workers).queue
        let countdown = Countdown(count)
        await queue.register(Increment.self) { _, _ in countdown.countDown() }
        try await stopwatch.measure { try await queue.runAvailable() }
        guard countdown.isOver else { throw Failed() }
      }
    }
  }

  private func storeWholeBenchmark(
    _ name: String,
    _ iterations: Int,
    against baseline: String
  ) -> Benchmark {
    Benchmark(rowName(name), against: baseline, iterations: iterations) { count, stopwatch in
      try await withStore { store, _ in
        let subject = Steadfast(store, workers: workers)
        try await stopwatch.measure {
          try await performWhileEnqueueing(count, by: subject, producers: producers)
        }
      }
    }
  }
}

// MARK: Claims

/// Reports the duration of a claim among many tasks, and of a raw statement that only claims.
func reportClaims(_ database: some Database) async throws {
  let title = "\(database.name): claim of \(workers)"
  guard isRowSelected(title) else { return }
  printRow("\n" + title, "    p50 µs    p99 µs   raw p50   raw p99     ratio")
  for count in [1_000, 1_000_000] + numbers(after: "pending=") {
    try await database.withStore { store, place in
      let table = try database.table(at: place)
      try table.fill(count)
      var own: [Double] = []
      var raw: [Double] = []
      for _ in 0..<1_000 {
        own.append(try await claimTime(of: store))
        let start = ContinuousClock.now
        let claimed = try table.claim(workers)
        raw.append(start.duration(to: .now) / .microseconds(1))
        try table.release(claimed)
      }
      let figures = [own, raw].flatMap { [percentile(50, of: $0), percentile(99, of: $0)] }
      let ratio = decimal(figures[0] / figures[2], digits: 2).leftPadded(to: 10)
      printRow(
        "\(count) pending",
        figures.map { decimal($0, digits: 1).leftPadded(to: 10) }.joined() + ratio
      )
    }
  }
}

/// Claims tasks, releases them, and returns the duration of the claim.
private func claimTime(of store: any Persistence) async throws -> Double {
  let request = ClaimRequest(
    limit: workers,
    names: ["Increment": workers],
    now: Date(),
    leaseDuration: .seconds(60)
  )
  let start = ContinuousClock.now
  let claim = try await store.claim(request)
  let time = start.duration(to: .now) / .microseconds(1)
  guard claim.tasks.count == workers else { throw Failed() }
  _ = try await store.apply(claim.tasks.map { .release($0.lease) }, durability: .relaxed)
  return time
}
