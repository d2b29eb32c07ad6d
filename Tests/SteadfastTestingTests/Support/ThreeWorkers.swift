import Dispatch
import SteadfastTesting

/// Three workers that share a list of jobs, with retries, timeouts and a cancellation.
enum ThreeWorkers {
  private struct Failed: Error {}
  private struct TimedOut: Error {}

  private actor Jobs {
    private var remaining = Array((0..<24).reversed())

    func next() -> Int? { remaining.popLast() }
  }

  /// Runs the workers, and returns one line for each event, with the time of the event, in order.
  static func trace(order: VirtualTime.Order, realWork: Bool = false) async throws -> [String] {
    let trace = Trace()
    let disk = DispatchQueue(label: "disk")
    try await withVirtualTime(order: order) { time in
      let jobs = Jobs()
      await withTaskGroup(of: Void.self) { group in
        for worker in 0..<3 {
          group.addTask {
            while !Task.isCancelled, let job = await jobs.next() {
              let end = await performJob(job, time: time, disk: realWork ? disk : nil)
              trace.note("\(time.clock.now): worker \(worker), job \(job) \(end)")
            }
          }
        }
        await time.advance(by: .seconds(20))
        trace.note("\(time.clock.now): cancelling")
        group.cancelAll()
      }
    }
    return trace.entries
  }

  /// Performs a job in up to three attempts, and returns how the job ended.
  private static func performJob(
    _ job: Int,
    time: VirtualTime,
    disk: DispatchQueue?
  ) async -> String {
    for attempt in 1...3 {
      do {
        try await withTimeLimit(.seconds(4), clock: time.clock) {
          try await time.clock.sleep(for: .seconds(1 + (job * attempt) % 5))
          if job % 3 == 0, attempt < 3 || job % 2 == 0 { throw Failed() }
        }
        if let disk { await time.withRealWork { await write(to: disk) } }
        return "done in attempt \(attempt)"
      } catch is CancellationError {
        return "cancelled"
      } catch is TimedOut {
        return "timed out"
      } catch {
        try? await time.clock.sleep(for: .seconds(1 << attempt))
      }
    }
    return "gave up"
  }

  private static func withTimeLimit(
    _ limit: Duration,
    clock: VirtualClock,
    _ operation: @escaping @Sendable () async throws -> Void
  ) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await operation() }
      group.addTask {
        try await clock.sleep(for: limit)
        throw TimedOut()
      }
      try await group.next()
      group.cancelAll()
    }
  }

  private static func write(to disk: DispatchQueue) async {
    await withCheckedContinuation { continuation in disk.async { continuation.resume() } }
  }
}
