import AllocationCounter
import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private let tasks = 100_000

/// Concurrent producers and workers.
///
/// Each task is enqueued, performed, and removed.
let endToEndBenchmarks: [Benchmark] = [(1, 1), (1, 8), (8, 1), (8, 8)].flatMap {
  (producers, workers) in
  let shape = "\(producers) producer\(producers == 1 ? "" : "s"), \(workers) at a time"
  return [
    Benchmark("hand-made: \(shape)", iterations: tasks) { count in
      try await performWhileEnqueueing(count, by: HandMade(workers: workers), producers: producers)
    },
    Benchmark("plain: \(shape)", against: "hand-made: \(shape)", iterations: tasks) { count in
      let queue = PlainQueue(workers: workers)
      try await performWhileEnqueueing(count, by: queue, producers: producers)
    },
    Benchmark(shape, against: "plain: \(shape)", iterations: tasks) { count in
      try await performWhileEnqueueing(count, by: Steadfast(workers: workers), producers: producers)
    },
  ]
}

/// First all tasks are enqueued, and then all tasks are performed.
let phaseBenchmarks =
  [1, 8].map { producers in
    Benchmark("enqueue, \(producers) at a time", iterations: tasks) { count in
      try await enqueueTasks(count, to: Steadfast(workers: 1).queue, producers: producers)
    }
  }
  + [1, 8].map { workers in
    Benchmark(
      "enqueue, then perform, \(workers) at a time",
      against: "enqueue, 1 at a time",
      iterations: tasks
    ) { count in
      let queue = Steadfast(workers: workers).queue
      await queue.register(Increment.self) { _, _ in }
      try await enqueueTasks(count, to: queue, producers: 1)
      try await queue.runAvailable()
    }
  } + [
    Benchmark("enqueue a batch", against: "enqueue, 1 at a time", iterations: tasks) { count in
      let queue = Steadfast(workers: 1).queue
      try await queue.enqueue(contentsOf: (0..<count).map { Increment(number: $0) })
    }
  ]

/// Each benchmark enqueues and performs one task at a time among a number of pending tasks.
func pendingBenchmarks() async throws -> [Benchmark] {
  var benchmarks: [Benchmark] = []
  for (name, count) in [("1,000 pending", 1000), ("1,000,000 pending", 1_000_000)]
  where isRowSelected(name) || name.hasPrefix("1,000 ") {
    let subject = Steadfast(workers: 1)
    try await subject.queue.enqueue(contentsOf: (0..<count).map { Increment(number: $0) })
    benchmarks.append(
      Benchmark(name, against: "1,000 pending", iterations: tasks) { count in
        try await performWhileEnqueueing(count, by: subject, producers: 1)
      }
    )
  }
  return benchmarks
}

/// Reports the time from the call of `enqueue` to the first line of the handler in an idle queue.
func reportLatencies() async throws {
  guard isRowSelected("enqueue to handler, idle") else { return }
  printRow("\nenqueue to handler, idle", "  p50 µs    p99 µs")
  for workers in [1, 8] {
    try await reportLatency("\(workers) at a time", of: Steadfast(workers: workers).queue)
  }
  let queue = Steadfast(workers: 1).queue
  try await queue.enqueue(
    contentsOf: (0..<10_000).map { Increment(number: $0) },
    options: TaskOptions(availableDate: .distantFuture, priority: .high)
  )
  for number in 0..<90_000 { try await queue.enqueue(name: "nobody's", .integer(number)) }
  try await reportLatency("100,000 pending, 10,000 far in the future", of: queue)
}

private func reportLatency(_ name: String, of queue: TaskQueue) async throws {
  let starts = AsyncStream.makeStream(of: ContinuousClock.Instant.self)
  await queue.register(Increment.self) { _, _ in starts.continuation.yield(.now) }
  let times = try await withThrowingTaskGroup { group in
    group.addTask { try? await queue.run() }
    var times: [Double] = []
    var iterator = starts.stream.makeAsyncIterator()
    for number in 0..<1000 {
      // This pause is long enough for all threads to fall asleep.
      try await ContinuousClock().sleep(for: .milliseconds(1))
      let begin = ContinuousClock.now
      try await queue.enqueue(Increment(number: number))
      guard let start = await iterator.next() else { break }
      times.append(begin.duration(to: start) / .microseconds(1))
    }
    group.cancelAll()
    return times
  }
  let figures = [percentile(50, of: times), percentile(99, of: times)]
  printRow(name, figures.map { decimal($0, digits: 1).leftPadded(to: 10) }.joined())
}

/// Reports the memory of a pending task.
///
/// The payload is so small that it needs no separate allocation.
func reportMemory() async throws {
  guard isRowSelected("memory of pending tasks") else { return }
  printRow("\nmemory of pending tasks", "   bytes a task")
  for (name, count) in [("10,000 pending", 10_000), ("1,000,000 pending", 1_000_000)] {
    let queue = Steadfast(workers: 1).queue
    let before = allocated_bytes()
    for number in 0..<count { try await queue.enqueue(Increment(number: number)) }
    let bytes = Double(allocated_bytes() - before) / Double(count)
    printRow(name, decimal(bytes, digits: 0).leftPadded(to: 15))
    withExtendedLifetime(queue) {}
  }
}
