#if PostgreSQL
import SteadfastPostgreSQL
import SteadfastQueue
import Synchronization

/// Passes many tasks through a store, and reports how the table of the store grows.
///
/// `through=10000000` gives the number of tasks; up to 100,000 of them are pending at a time. With
/// `snapshot=600`, another session holds a snapshot for 600 seconds after a tenth of the tasks, so
/// that the server can't remove the rows of finished tasks.
func reportLongRun(_ database: PostgreSQLDatabase) async throws {
  for count in numbers(after: "through=") {
    try await database.withStore { store, place in
      try await LongRun(count, store, try RawConnection(place), try RawConnection(place)).run()
    }
  }
}

private struct LongRun {
  private static let mostPending = 100_000
  private static let batch = 100
  private static let workers = 8

  private let count: Int
  private let store: ClaimTimes
  private let observer: RawConnection
  private let holder: RawConnection
  private let passed = PassedTasks()

  init(
    _ count: Int,
    _ store: any Persistence,
    _ observer: RawConnection,
    _ holder: RawConnection
  ) {
    self.count = count
    self.store = ClaimTimes(store)
    self.observer = observer
    self.holder = holder
  }

  func run() async throws {
    let queue = Steadfast(store, workers: Self.workers).queue
    let added = Self.mostPending / Self.batch
    for _ in 0..<added { try await Self.addBatch(to: queue) }
    let peak = try tableSize()
    printRow(
      "\n\(count) tasks through PostgreSQL, \(Self.mostPending) pending",
      "   a second   claim p50    claim p99 µs   MB   × of the pending   snapshot"
    )
    await queue.register(Increment.self) { [passed] _, _ in passed.countTask() }
    try await withThrowingTaskGroup { group in
      group.addTask { try? await queue.run() }
      group.addTask { [passed, count] in
        for batch in added..<max(added, count / Self.batch) {
          await passed.waitUntilCount(reaches: (batch + 1) * Self.batch - Self.mostPending)
          try await Self.addBatch(to: queue)
        }
      }
      try await printTenths(peakSize: peak)
      group.cancelAll()
      try await group.waitForAll()
    }
  }

  private static func addBatch(to queue: TaskQueue) async throws {
    try await queue.enqueue(contentsOf: (0..<batch).map { Increment(number: $0) })
  }

  /// Prints a row for each tenth of the tasks.
  private func printTenths(peakSize peak: Int) async throws {
    let snapshot = numbers(after: "snapshot=").first
    var start = ContinuousClock.now
    var end: ContinuousClock.Instant?
    for tenth in 1...10 {
      await passed.waitUntilCount(reaches: count / 10 * tenth)
      let times = store.takeTimes()
      let seconds = start.duration(to: .now) / .seconds(1)
      let megabytes = Double(try tableSize()) / 1e6
      printRow(
        "tenth \(tenth)",
        [
          decimal(Double(count / 10) / seconds, digits: 0).leftPadded(to: 11),
          decimal(percentile(50, of: times), digits: 0).leftPadded(to: 12),
          decimal(percentile(99, of: times), digits: 0).leftPadded(to: 16),
          decimal(megabytes, digits: 0).leftPadded(to: 5),
          decimal(megabytes * 1e6 / Double(peak), digits: 1).leftPadded(to: 19),
          end == nil ? "" : "   held",
        ].joined()
      )
      if let snapshot, tenth == 1 {
        try holder.execute("begin isolation level repeatable read")
        _ = try holder.queryInteger("select count(*) from pg_class")
        end = .now + .seconds(snapshot)
      } else if let date = end, date < .now {
        try holder.execute("rollback")
        end = nil
      }
      start = .now
    }
  }

  /// Returns the size of the table of tasks with its indexes, in bytes.
  private func tableSize() throws -> Int {
    try observer.queryInteger("select pg_total_relation_size('steadfast_task')")
  }
}

/// A counter of performed tasks; other tasks can wait until the counter reaches a number.
private final class PassedTasks: Sendable {
  private struct State {
    var count = 0
    var waiters: [(number: Int, continuation: CheckedContinuation<Void, Never>)] = []
  }

  private let state = Mutex(State())

  func countTask() {
    let reached = state.withLock { state in
      state.count += 1
      guard !state.waiters.isEmpty else { return state.waiters }
      let reached = state.waiters.filter { $0.number <= state.count }
      if !reached.isEmpty { state.waiters.removeAll { $0.number <= state.count } }
      return reached
    }
    for waiter in reached { waiter.continuation.resume() }
  }

  func waitUntilCount(reaches number: Int) async {
    await withCheckedContinuation { continuation in
      let isReached = state.withLock { state in
        if state.count < number { state.waiters.append((number, continuation)) }
        return state.count >= number
      }
      if isReached { continuation.resume() }
    }
  }
}
#endif
