// Metrics with swift-metrics. Copy this file: it is yours.

// snippet.file
import Metrics
import SteadfastQueue
import Synchronization

/// Measures how long tasks have waited, and how long their attempts take.
final class MetricsMiddleware: TaskMiddleware {
  private let timers = Mutex<[[String]: Timer]>([:])

  func perform(
    _ context: TaskContext,
    next: AttemptChain
  ) async throws {
    record(context.waited, "steadfast_task_wait_seconds", of: context)
    let start = ContinuousClock.now
    var end = "success"
    defer {
      let duration = start.duration(to: .now)
      record(duration, "steadfast_task_run_seconds", of: context, end)
    }
    do {
      try await next()
    } catch {
      end = "\(type(of: error))"
      throw error
    }
  }

  private func record(
    _ duration: Duration,
    _ label: String,
    of task: TaskContext,
    _ end: String = ""
  ) {
    let values = [task.queueName, task.name, end]
    let timer = timers.withLock { timers in
      let known = timers[[label] + values]
      let names = ["queue", "task", "end"]
      let timer =
        known
        ?? Timer(label: label, dimensions: Array(zip(names, values)))
      timers[[label] + values] = timer
      return timer
    }
    timer.record(duration: duration)
  }
}
// snippet.end
