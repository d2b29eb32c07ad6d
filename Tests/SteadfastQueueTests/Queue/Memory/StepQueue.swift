import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Makes queues with a given handler.
///
/// The log contains texts with their times.
struct StepQueue {
  let time: VirtualTime
  let log = Log<String>()

  init() throws { time = try #require(VirtualTime.current) }

  var clock: VirtualClock { time.clock }

  func makeQueue(
    on store: any Persistence,
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(
      maxConcurrentTasks: 4,
      backoff: .constant(.seconds(60)),
      abandonedRetention: .forever
    ),
    _ perform: @escaping @Sendable (Note, TaskContext) async throws -> Void
  ) async -> TaskQueue {
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    await queue.register(Note.self) { note, context in try await perform(note, context) }
    return queue
  }

  /// Works for a while, even if cancelled.
  func workDespiteCancellation(for duration: Duration) async {
    await Task(executorPreference: time.executor) { [clock] in
      try? await clock.sleep(for: duration)
    }.value
  }

  /// Logs a text with the elapsed seconds.
  func logWithTime(_ text: String) { log.add("\(Int(clock.now.offset / .seconds(1))) \(text)") }
}

extension TaskContext {
  /// Performs a step that logs its name, and returns the name.
  func performLoggedStep(_ name: String, in test: StepQueue) async throws -> String {
    try await step(name) { _ in
      test.logWithTime(name)
      return name
    }
  }
}
