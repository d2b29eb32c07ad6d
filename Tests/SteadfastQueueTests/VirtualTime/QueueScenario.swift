import Foundation
import SteadfastQueue
import SteadfastTesting
import TestSupport

/// A scenario for a queue with three workers.
///
/// The scenario has retries and time limits, tasks that are snoozed, abandoned and replaced, and a
/// run that is cancelled halfway.
enum QueueScenario {
  struct Job: TaskPayload { var number: Int }

  /// Runs the scenario, and returns its log.
  ///
  /// Each line contains the time.
  static func trace(
    over store: some Persistence,
    order: VirtualTime.Order = .inOrder
  ) async throws -> [String] {
    let log = Log<String>()
    try await withVirtualTime(order: order) { time in
      let clock = time.clock
      let queue = TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(
          maxConcurrentTasks: 3,
          backoff: .exponential(from: .seconds(1), multiplier: 2).jittered(.equal),
          randomness: .seeded(1)
        ),
        clock: clock
      )
      await queue.register(Job.self) { job, context in
        log.add("\(clock.now): job \(job.number) begins, retry \(context.retryCount)")
        try await perform(job, context, clock)
      }
      let events = queue.events
      try await withThrowingTaskGroup(of: Void.self) { observers in
        observers.addTask {
          for await event in events { log.add("\(clock.now): \(summary(of: event))") }
        }
        let tasks = try await enqueue(in: queue, clock)
        try await runUntilCancelled(queue, after: .seconds(8), time)
        log.add("\(clock.now): run again")
        try await withRunning(queue) {
          for task in tasks {
            let outcome = try await task.outcome()
            log.add("\(clock.now): outcome \(outcome)")
          }
        }
        observers.cancelAll()
      }
      try await store.close()
    }
    return log.entries
  }

  private static func enqueue(
    in queue: TaskQueue,
    _ clock: VirtualClock
  ) async throws -> [EnqueuedTask] {
    var tasks = try await queue.enqueue(
      contentsOf: (0..<12).map(Job.init),
      options: TaskOptions(maxRetries: 2)
    )
    tasks.append(try await queue.enqueue(Job(number: 20), uniqueKey: "key"))
    tasks.append(
      try await queue.enqueue(Job(number: 21), uniqueKey: "key", onDuplicate: .replace)
    )
    tasks.append(try await queue.enqueue(Job(number: 22), availableDate: clock.date + 3600))
    tasks.append(try await queue.enqueue(Job(number: 23)))
    try await tasks[tasks.count - 1].cancel()
    return tasks
  }

  private static func perform(
    _ job: Job,
    _ context: TaskContext,
    _ clock: VirtualClock
  ) async throws {
    if job.number == 7, clock.now.offset < .seconds(30) { throw TaskSnoozed(for: .seconds(30)) }
    try await withTimeout(.seconds(4), clock: clock) {
      try await clock.sleep(for: .seconds(1 + (job.number * (context.retryCount + 1)) % 6))
    }
    if job.number % 3 == 0, context.retryCount < 2 || job.number % 2 == 0 { throw Refusal() }
  }

  private static func runUntilCancelled(
    _ queue: TaskQueue,
    after duration: Duration,
    _ time: VirtualTime
  ) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await queue.run() }
      try await time.clock.sleep(for: duration)
      group.cancelAll()
      do {
        try await group.waitForAll()
      } catch is CancellationError {}
    }
  }

  private static func summary(of event: TaskEvent) -> String {
    switch event {
    case .enqueued(let record): "\(record.id) enqueued"
    case .started(let record): "\(record.id) started"
    case .failed(let record, let reason, let date, _): "\(record.id) failed, \(reason), \(date)"
    case .snoozed(let record, let date): "\(record.id) snoozed until \(date)"
    case .succeeded(let record, _): "\(record.id) succeeded"
    case .abandoned(let record, let reason, _): "\(record.id) abandoned, \(reason)"
    case .cancelled(let id): "\(id) cancelled"
    case .released(let record): "\(record.id) released"
    default: "\(event)"
    }
  }
}
