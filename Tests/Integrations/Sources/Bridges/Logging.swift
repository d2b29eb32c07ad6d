// Logs with swift-log. Copy this file: it is yours.

// snippet.file
import Logging
import SteadfastQueue

/// Gives handlers a logger that names their task, `Logger.current`.
struct LoggingMiddleware: TaskMiddleware {
  func perform(
    _ context: TaskContext,
    next: AttemptChain
  ) async throws {
    let task: Logger.Metadata = [
      "task.id": "\(context.id)",
      "task.name": "\(context.name)",
      "task.queue": "\(context.queueName)",
      "task.retries": "\(context.retryCount)",
    ]
    try await withLogger(mergingMetadata: task) { _ in try await next() }
  }
}

/// Logs what happens in a queue, until the queue has shut down.
func log(_ events: TaskEvents, to logger: Logger) async {
  for await event in events {
    let level: Logger.Level =
      switch event {
      case .abandoned: .error
      case .unhandled, .scheduleParked, .storeUnavailable, .missed: .warning
      case .failed: .notice
      case .succeeded, .snoozed, .released: .info
      default: .debug
      }
    let id = event.taskID.map { "\($0)" } ?? "none"
    logger.log(level: level, "\(event)", metadata: ["task.id": "\(id)"])
  }
}
// snippet.end
