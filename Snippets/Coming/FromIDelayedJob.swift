//! The example of iDelayedJob's README, with its queues and its manager.

import Foundation
import SteadfastQueue

// snippet.job
struct PrimaryJob: PerformableTask {
  var arguments: [String] = []

  func perform(in context: TaskContext) async throws {
    let attempts = "\(context.name) has had \(context.retryCount) attempts"
    print("\(attempts): \(arguments)")
  }
}
// snippet.end

// snippet.ability
struct AbilityJob: TaskPayload { var arguments: [String] = [] }

struct Ability: TaskHandler {
  func perform(_ job: AbilityJob, in context: TaskContext) async throws {
    if job.arguments.isEmpty { throw TaskAbandoned("no arguments") }
  }

  func retryDate(
    of job: AbilityJob,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    let seconds = (context.retryCount + 5) * 4
    return Date.now + Double(seconds)
  }

  func shouldRestart(
    _ job: AbilityJob,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool {
    false
  }

  func willEnd(
    _ job: AbilityJob,
    outcome: TaskOutcome,
    in context: TaskContext
  ) async {
    print("ability job: \(outcome)")
  }
}
// snippet.end

// snippet.configuration
let threeAttempts = TaskQueueConfiguration(
  backoff: .custom { attempt in .seconds((attempt.number + 5) * 4) },
  taskDefaults: TaskOptions(maxRetries: 2)
)
// snippet.end

// snippet.manager
let manager = TaskQueueGroup(configuration: threeAttempts) { queue in
  await queue.register(PrimaryJob.self)
  await queue.register(handler: Ability())
}
let primaryQueue = try await manager.addQueue("PrimaryQueue")
try await manager.addQueue("SecondaryQueue")
// snippet.end

// snippet.schedule
try await primaryQueue.enqueue(PrimaryJob(), priority: 5)
try await manager.enqueue(
  AbilityJob(arguments: ["Arg1", "Arg2"]),
  on: "SecondaryQueue"
)
try await manager.enqueue(
  PrimaryJob(),
  on: "PrimaryQueue",
  options: TaskOptions(conditions: [.network])
)
try await primaryQueue.enqueue(
  PrimaryJob(),
  uniqueKey: "only",
  onDuplicate: .replace
)
// snippet.end

// snippet.network
await primaryQueue.setCondition(.network, holds: true)
await primaryQueue.setCondition("app is active", holds: true)
// snippet.end

// snippet.look
let queue = try manager.queue(named: "SecondaryQueue")
for job in try await queue.tasks() {
  print(job.retryCount, job.lastError ?? "-", job.availableDate)
}
// snippet.end

// snippet.run
print("\(try await manager.runAvailable()) jobs")
await manager.pause()
await manager.resume()
await manager.shutDown()
// snippet.end
