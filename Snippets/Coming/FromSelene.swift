//! Selene's tasks: priorities, response times, and passes of 30 s.

import SteadfastQueue

// snippet.scheduler
let scheduler = BackgroundScheduler(
  minimumInterval: .seconds(60 * 5)
)
// snippet.end

// snippet.task
await scheduler.register(
  "SampleTask",
  priority: .low,
  expectedDuration: .seconds(5)
) {
  // Do some work …
  return .noData
}
// snippet.end
await scheduler.register(
  "AveragedTask",
  priority: .veryHigh,
  expectedDuration: .seconds(30),
  averaging: 5
) {
  .newData
}

// snippet.start
let result = try await scheduler.run(within: .seconds(30))
switch result {
case .newData: print("new data")
case .noData: print("no data")
case .failed: print("failed")
}
// snippet.end

// snippet.now
_ = try await scheduler.run("SampleTask", within: .seconds(30))
// snippet.end

// snippet.status
for task in try await scheduler.status {
  print(task.name, task.priority, task.averageDuration)
  print(task.lastRunDate as Any, task.lastError as Any)
}
// snippet.end

// snippet.stop
let pass = Task { try await scheduler.run(within: .seconds(30)) }
pass.cancel()
_ = await pass.result
// snippet.end

// snippet.reset
try await scheduler.reset()
// snippet.end
