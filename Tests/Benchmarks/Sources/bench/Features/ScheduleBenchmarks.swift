import AllocationCounter
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reports the memory of a schedule with the task that waits for its next occurrence.
func reportSchedules() async throws {
  guard isPicked("memory of schedules") else { return }
  report("\nmemory of schedules", "   bytes each")
  let count = 10_000
  let plain = try await bytes(count) { queue, number in
    try await queue.enqueue(Increment(number: number), delay: .seconds(86_400))
  }
  report("a task that waits", decimal(plain, digits: 0).leftPadded(to: 18))
  let scheduled = try await bytes(count) { queue, number in
    try await queue.schedule(
      "schedule \(number)",
      .every(.seconds(86_400)),
      Increment(number: number)
    )
  }
  report("a schedule and its task", decimal(scheduled, digits: 0).leftPadded(to: 12))
}

private func bytes(
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
