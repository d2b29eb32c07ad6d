// A queue in a service group of Swift Service Lifecycle. Copy this file: it is yours.

// snippet.file
import ServiceLifecycle
import SteadfastQueue

/// Performs tasks until the service group shuts down.
struct QueueService: Service {
  let queue: TaskQueue
  /// How long attempts may continue when the group shuts down.
  let gracePeriod: Duration

  func run() async throws {
    try await withGracefulShutdownHandler {
      do {
        try await queue.run()
      } catch let error as TaskQueueError where error.code == .shutDown {
        // The group was shut down before the queue ran.
      }
    } onGracefulShutdown: {
      queue.beginShutDown(within: gracePeriod)
    }
  }
}
// snippet.end
