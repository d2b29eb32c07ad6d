import AllocationCounter
import SteadfastQueue
import SteadfastTesting
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The cost of an occurrence of a schedule, with the step to the next date.
let occurrenceBenchmarks = [
  Benchmark("an occurrence, in memory", iterations: 500) { count, stopwatch in
    try await performOccurrences(count, in: InMemoryStore(), stopwatch)
  },
  Benchmark("an occurrence, in a file", iterations: 500) { count, stopwatch in
    try await withScratchFile { url in
      let store = JSONFileStore(at: url)
      try await performOccurrences(count, in: store, stopwatch)
      try await store.close()
    }
  },
]

/// Performs an hourly schedule for this number of hours, which have passed.
private func performOccurrences(
  _ count: Int,
  in store: any Persistence,
  _ stopwatch: Stopwatch
) async throws {
  let clock = VirtualClock()
  let queue = TaskQueue(persistence: store, clock: clock)
  let performed = Atomic(0)
  await queue.register(Increment.self) { _, _ in performed.add(1, ordering: .relaxed) }
  try await queue.schedule(
    "hourly",
    .every(.seconds(3_600)),
    Increment(number: 0),
    missed: .each(atMost: count)
  )
  clock.advance(by: .seconds(3_600 * count))
  try await stopwatch.measure { try await queue.runAvailable() }
  guard performed.load(ordering: .relaxed) == count else { throw Failed() }
}

/// Reports the memory of a schedule together with the task that waits for the next occurrence.
func reportSchedules() async throws {
  guard isRowSelected("memory of schedules") else { return }
  printRow("\nmemory of schedules", "   bytes each")
  let count = 10_000
  let plain = try await bytesPerTask(count) { queue, number in
    try await queue.enqueue(Increment(number: number), delay: .seconds(86_400))
  }
  printRow("a task that waits", decimal(plain, digits: 0).leftPadded(to: 18))
  let scheduled = try await bytesPerTask(count) { queue, number in
    try await queue.schedule(
      "schedule \(number)",
      .every(.seconds(86_400)),
      Increment(number: number)
    )
  }
  printRow("a schedule and its task", decimal(scheduled, digits: 0).leftPadded(to: 12))
}

/// Adds this number of tasks to a new queue, and returns the memory of each task in bytes.
private func bytesPerTask(
  _ count: Int,
  _ add: (TaskQueue, Int) async throws -> Void
) async throws -> Double {
  let queue = TaskQueue()
  await queue.register(Increment.self) { _, _ in }
  let before = allocated_bytes()
  for number in 0..<count { try await add(queue, number) }
  let bytes = Double(allocated_bytes() - before) / Double(count)
  guard try await queue.count == count else { throw Failed() }
  return bytes
}
