import AllocationCounter
import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A task that occupies about 200 bytes in a file.
private struct Letter: TaskPayload {
  var text = "so important"
  var number: Int
}

// MARK: Opening

/// Reports the time from opening a file of pending tasks to the first line of a handler, and the
/// memory of each task without the bytes of the payload.
func reportReopening() async throws {
  printRow("\nopening a file of pending tasks", "      MB   seconds to the handler   bytes a task")
  for count in [10_000, 1_000_000] {
    try await withScratchFile { url in
      try await writeTasks(count, to: url)
      let size = try Double(FileManager.default.attributesOfItem(atPath: url.path).size)
      var times: [Double] = []
      var bytes: [Double] = []
      for _ in 0..<(count > 100_000 ? 3 : 9) {
        let sample = try await measureReopening(of: url)
        times.append(sample.seconds)
        bytes.append(sample.bytes / Double(count) - payloadSize)
      }
      printRow(
        "\(count) pending",
        decimal(size / 1e6, digits: 1).leftPadded(to: 8)
          + decimal(median(times), digits: 3).leftPadded(to: 25)
          + decimal(median(bytes), digits: 0).leftPadded(to: 15)
      )
    }
  }
}

/// The size of the payload of most letters, in bytes.
private let payloadSize = Double(#"{"text":"so important","number":500000}"#.utf8.count)

extension [FileAttributeKey: Any] {
  fileprivate var size: UInt64 { self[.size] as? UInt64 ?? 0 }
}

private func writeTasks(_ count: Int, to url: URL) async throws {
  let store = JSONFileStore(at: url)
  let queue = TaskQueue(persistence: store)
  for first in stride(from: 0, to: count, by: 10_000) {
    try await queue.enqueue(contentsOf: (first..<first + 10_000).map { Letter(number: $0) })
  }
  try await store.close()
}

private func measureReopening(of url: URL) async throws -> (seconds: Double, bytes: Double) {
  let before = allocated_bytes()
  let first = AsyncStream.makeStream(of: ContinuousClock.Instant.self)
  let start = ContinuousClock.now
  let store = JSONFileStore(at: url)
  let queue = TaskQueue(persistence: store)
  await queue.register(Letter.self) { _, _ in
    first.continuation.yield(.now)
    // Cancelling the sleep releases the task, so that the next opening finds the same number.
    try await ContinuousClock().sleep(for: .seconds(3600))
  }
  let end = await withTaskGroup { group in
    group.addTask {
      do {
        try await queue.run()
      } catch is CancellationError {
      } catch {
        // Without a run, the wait for the handler would never end.
        preconditionFailure("\(error)")
      }
    }
    var iterator = first.stream.makeAsyncIterator()
    let end = await iterator.next() ?? .now
    group.cancelAll()
    return end
  }
  let bytes = Double(allocated_bytes()) - Double(before)
  try await store.close()
  return (start.duration(to: end) / .seconds(1), bytes)
}

// MARK: Compaction

private let dead = 500_000
private let alive = 1000

/// Reports the duration of an enqueue before, during and after a compaction of the file.
///
/// Of a million records in the file, only 1,000 are still needed. The store compacts the file
/// automatically while eight producers continue.
func reportCompaction() async throws {
  try await withScratchFile { url in
    let store = JSONFileStore(at: url)
    let queue = TaskQueue(persistence: store)
    let tasks = try await queue.enqueue(
      contentsOf: (0..<alive + dead).map { Letter(number: $0) },
      options: TaskOptions(availableDate: .distantFuture)
    )
    let before = try await latencies(of: queue, for: .seconds(1))
    let heap = allocated_bytes()
    let size = try await store.statistics().byteCount
    let now = Date()
    let ends = tasks.prefix(dead).map {
      TaskChange.cancel(.unclaimed($0.id), at: now, retains: false)
    }
    _ = try await store.apply(ends, durability: .durable)
    let peak = Peak()
    let during = try await latencies(of: queue) {
      peak.sample()
      return try await store.statistics().lastCompaction == nil
    }
    let after = try await latencies(of: queue, for: .seconds(1))
    let statistics = try await store.statistics()
    let columns = ["enqueues", "p50 µs", "p99 µs", "max µs"].map { $0.leftPadded(to: 10) }.joined()
    printRow("\nenqueue beside a compaction, 8 at a time", columns)
    reportLatencies("before", before)
    reportLatencies("during", during)
    reportLatencies("after", after)
    printRow("the file, from … to … MB", megabytes(size) + megabytes(statistics.byteCount))
    printRow("the heap before, and at its peak, MB", megabytes(Int(heap)) + megabytes(peak.bytes))
    try await store.close()
  }
}

private final class Flag: Sendable {
  let isUp = Atomic(false)
}

/// The largest of several samples of the memory in use.
private final class Peak: Sendable {
  private let most = Atomic(0)

  var bytes: Int { most.load(ordering: .relaxed) }

  func sample() { _ = most.max(Int(allocated_bytes()), ordering: .relaxed) }
}

/// Formats a number of bytes in megabytes.
private func megabytes(_ bytes: Int) -> String {
  decimal(Double(bytes) / 1e6, digits: 1).leftPadded(to: 10)
}

private func reportLatencies(_ name: String, _ times: [Double]) {
  let figures = [percentile(50, of: times), percentile(99, of: times), times.max() ?? 0]
  printRow(
    name,
    String(times.count).leftPadded(to: 10)
      + figures.map { decimal($0, digits: 0).leftPadded(to: 10) }.joined()
  )
}

private func latencies(of queue: TaskQueue, for duration: Duration) async throws -> [Double] {
  let end = ContinuousClock.now + duration
  return try await latencies(of: queue) {
    try await ContinuousClock().sleep(until: end)
    return false
  }
}

/// Returns the durations of all enqueues until the condition fails, in microseconds.
private func latencies(
  of queue: TaskQueue,
  while condition: @escaping @Sendable () async throws -> Bool
) async throws -> [Double] {
  let isOver = Flag()
  return try await withThrowingTaskGroup(of: [Double].self) { group in
    for producer in 0..<8 {
      group.addTask {
        var times: [Double] = []
        while !isOver.isUp.load(ordering: .relaxed) {
          let start = ContinuousClock.now
          try await queue.enqueue(Letter(number: producer), availableDate: .distantFuture)
          times.append(start.duration(to: .now) / .microseconds(1))
        }
        return times
      }
    }
    while try await condition() { try await ContinuousClock().sleep(for: .milliseconds(1)) }
    isOver.isUp.store(true, ordering: .relaxed)
    return try await group.reduce(into: []) { $0 += $1 }
  }
}
