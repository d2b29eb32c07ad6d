//! A queue in a service group of Swift Service Lifecycle. It is compiled in a package that has it.

#if canImport(ServiceLifecycle)
import ServiceLifecycle
import SteadfastQueue

// snippet.service
struct QueueService: Service {
  let queue: TaskQueue
  let gracePeriod: Duration

  func run() async throws {
    try await withGracefulShutdownHandler {
      do {
        try await queue.run()
      } catch let error as TaskQueueError where error.code == .shutDown {
        // The signal came first.
      }
    } onGracefulShutdown: {
      queue.beginShutDown(within: gracePeriod)
    }
  }
}
// snippet.end
#else
print("build it in a package with Swift Service Lifecycle")
#endif
