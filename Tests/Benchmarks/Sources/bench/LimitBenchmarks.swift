import AllocationCounter
import Foundation
import SteadfastQueue

private let limit = Duration.seconds(3_600)
private let options = TaskOptions(timeLimit: limit)
private let calls = 1_000_000

/// Reports the memory that limits of an hour retain if they are not reached, and the cost of a call
/// with such a limit.
func reportLimits() async throws {
  printRow("\nlimits of an hour, not reached", "   µs a call    bytes in use    resident bytes")
  try await reportGrowth("withTimeout, does not suspend", of: calls) {
    for index in 0..<calls { consume(try await withTimeout(limit) { try await succeed(index) }) }
  }
  try await reportGrowth("withTimeout, yields", of: calls) {
    for _ in 0..<calls { try await withTimeout(limit) { await Task.yield() } }
  }
  for workers in [1, 8] {
    let queue = Steadfast(workers: workers).queue
    await queue.register(Increment.self) { _, _ in await Task.yield() }
    try await performTasks(100_000, by: queue)
    try await reportGrowth("attempts of a queue, \(workers) at a time", of: calls) {
      for _ in 0..<10 { try await performTasks(calls / 10, by: queue) }
    }
  }
}

private func performTasks(_ count: Int, by queue: TaskQueue) async throws {
  try await queue.enqueue(contentsOf: (0..<count).map { Increment(number: $0) }, options: options)
  try await queue.runAvailable()
}

private func reportGrowth(
  _ name: String,
  of count: Int,
  _ body: () async throws -> Void
) async throws {
  let (used, resident) = (allocated_bytes(), residentBytes)
  let start = ContinuousClock.now
  try await body()
  let microseconds = start.duration(to: .now) / .microseconds(1) / Double(count)
  let figures = [
    decimal(microseconds, digits: 2).leftPadded(to: 12),
    String(Int(allocated_bytes()) - Int(used)).leftPadded(to: 16),
    String(residentBytes - resident).leftPadded(to: 18),
  ]
  printRow(name, figures.joined())
}

/// The resident memory of the process in bytes; 0 where that is unavailable.
private var residentBytes: Int {
  let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
  let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
  let kilobytes = line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
  return 1_024 * (kilobytes ?? 0)
}
