// How the other files of this folder come together in a server.

import Hummingbird
import Logging
import Metrics
import ServiceLifecycle
import SteadfastQueue
import Tracing

/// Makes a queue that is logged, measured and traced.
func makeQueue(in store: some Persistence) -> TaskQueue {
  // snippet.queue
  let queue = TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(
      maxConcurrentTasks: 8,
      middleware: [
        TracingMiddleware(), LoggingMiddleware(), MetricsMiddleware(),
      ]
    )
  )
  // snippet.end
  return queue
}

/// Serves requests and performs tasks until the process gets a signal.
func runServer(_ queue: TaskQueue, _ logger: Logger) async throws {
  // snippet.run
  let router = Router()
  addProbes(for: queue, to: router)
  let group = ServiceGroup(
    services: [
      Application(router: router),
      QueueService(queue: queue, gracePeriod: .seconds(20)),
    ],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: logger
  )
  let events = queue.events
  async let logged: Void = log(events, to: logger)
  try await group.run()
  await logged
  // snippet.end
}
