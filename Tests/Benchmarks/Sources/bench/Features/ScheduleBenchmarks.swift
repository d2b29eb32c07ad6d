import AllocationCounter
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
