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
  // An orchestrator asks from outside of the container.
  let server = Application(
    router: router,
    configuration: .init(address: .hostname("0.0.0.0"))
  )
  var configuration = ServiceGroupConfiguration(
    services: [
      server, QueueService(queue: queue, gracePeriod: .seconds(20)),
    ],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: logger
  )
  configuration.maximumGracefulShutdownDuration = .seconds(25)
  let group = ServiceGroup(configuration: configuration)

  let events = queue.events
  async let logged: Void = log(events, to: logger)
  // Handlers log with this logger.
  try await withLogger(logger) { _ in try await group.run() }
  await logged
  // snippet.end
}
