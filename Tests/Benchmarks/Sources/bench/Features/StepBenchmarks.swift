import AllocationCounter
import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private let steps = 2000
private let change = "a durable change of a value"

/// The cost of a step, compared with one durable change in the same store.
let stepBenchmarks = [
  Benchmark(change, iterations: steps) { count in
    try await withScratchFile { url in
      let store = JSONFileStore(at: url)
      let queue = TaskQueue(persistence: store)
      for number in 0..<count { try await queue.setValue([UInt8(number % 251)], named: "cursor") }
      try await store.close()
    }
  },
  stepBenchmark("a step", perTask: 20) { context, count in
    for number in 0..<count { _ = try await context.step("s", for: number) { _ in number } }
  },
  stepBenchmark("a step, 8 side by side", perTask: 24) { context, count in
    try await withThrowingTaskGroup(of: Void.self) { group in
      for lane in 0..<8 {
        group.addTask {
          for number in 0..<count / 8 {
            _ = try await context.step("s\(lane)", for: number) { _ in number }
          }
        }
      }
      try await group.waitForAll()
    }
  },
]

private func stepBenchmark(
  _ name: String,
  perTask: Int,
  _ body: @escaping @Sendable (TaskContext, Int) async throws -> Void
) -> Benchmark {
  Benchmark(name, against: change, iterations: steps / perTask * perTask) { count in
    try await withScratchFile { url in
      let store = JSONFileStore(at: url)
      let queue = TaskQueue(persistence: store)
      await queue.register(Increment.self) { _, context in try await body(context, perTask) }
      try await queue.enqueue(contentsOf: (0..<count / perTask).map { Increment(number: $0) })
      try await queue.runAvailable()
      try await store.close()
    }
  }
}

/// Reports the memory of a suspended task, and checks that the queue has one timer and no worker.
func reportSuspended() async throws {
  guard isRowSelected("memory of suspended tasks") else { return }
  printRow("\nmemory of suspended tasks", "   bytes a task")
  let count = 100_000
  let queue = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 8))
  await queue.register(Increment.self) { _, context in
    try await context.sleep("before the reminder", for: .seconds(86_400))
  }
  let before = allocated_bytes()
  for number in 0..<count { try await queue.enqueue(Increment(number: number)) }
  try await queue.runAvailable()
  let bytes = Double(allocated_bytes() - before) / Double(count)
  let suspended = try await queue.statistics.counts[.suspended] ?? 0
  printRow("\(suspended) suspended", decimal(bytes, digits: 0).leftPadded(to: 15))
}
