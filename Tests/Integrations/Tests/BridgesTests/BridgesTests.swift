import CoreMetrics
import Foundation
import Hummingbird
import InMemoryLogging
import InMemoryTracing
import Logging
import MetricsTestKit
import NIOEmbedded
import ServiceLifecycle
import SteadfastQueue
import Synchronization
import Testing
import Tracing

@testable import Bridges

/// Tests the files that people copy into their programs, with the libraries that the files are for.
///
/// The suite is serialized because a signal is for the whole process.
@Suite(.serialized, .timeLimit(.minutes(1))) struct BridgesTests {
  private struct Photo: TaskPayload {
    static let taskName = "Photo"
    var number = 0
  }

  private struct Unreachable: Error {}

  private let logs = InMemoryLogHandler()
  private let tracer = InMemoryTracer()
  private let metrics = TestMetrics()
  private let factory: CountingFactory

  init() { factory = CountingFactory(metrics) }

  /// Calls a body in which all three libraries have a backend.
  private func withBackends(_ body: (Logger) async throws -> Void) async throws {
    let logger = Logger(label: "test") { _ in
      var handler = logs
      handler.logLevel = .trace
      return handler
    }
    try await withMetricsFactory(factory) {
      try await withTracer(tracer) {
        try await withLogger(logger) { try await body($0) }
      }
    }
  }

  private func makeQueue(
    _ middleware: [any TaskMiddleware] = [],
    maxConcurrentTasks: Int = 1
  ) -> TaskQueue {
    TaskQueue(
      name: "photos",
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: maxConcurrentTasks,
        taskDefaults: TaskOptions(maxRetries: 0),
        middleware: middleware
      )
    )
  }

  @Test func `a handler's logger names the task, and events are logged by how bad they are`()
    async throws
  {
    try await withBackends { logger in
      let queue = makeQueue([LoggingMiddleware()])
      await queue.register(Photo.self) { photo, _ in
        Logger.current.info("uploading")
        if photo.number == 1 { throw Unreachable() }
      }
      let events = queue.events
      async let logged: Void = log(events, to: logger)
      let tasks = try await queue.enqueue(contentsOf: [Photo(), Photo(number: 1)])
      try await queue.runAvailable()
      await queue.shutDown()
      await logged
      let lines = logs.entries
      let uploads = lines.filter { "\($0.message)" == "uploading" }
      #expect(uploads.map { $0.metadata["task.id"] } == tasks.map { "\($0.id)" })
      #expect(uploads.map { $0.metadata["task.name"] } == ["Photo", "Photo"])
      #expect(uploads.map { $0.metadata["task.queue"] } == ["photos", "photos"])
      #expect(uploads.map { $0.metadata["task.retries"] } == ["0", "0"])
      let errors = lines.filter { $0.level == .error }
      #expect(errors.map { $0.metadata["task.id"] } == ["\(tasks[1].id)"])
      #expect(errors.allSatisfy { "\($0.message)".contains("Unreachable") })
      #expect(lines.contains { $0.level == .info && "\($0.message)".hasPrefix("succeeded: ") })
    }
  }

  @Test func `attempts are measured by task and error, with one metric for each`() async throws {
    try await withBackends { _ in
      let queue = makeQueue([MetricsMiddleware()])
      await queue.register(Photo.self) { photo, _ in
        if photo.number == 2 { throw Unreachable() }
      }
      try await queue.enqueue(contentsOf: (0...2).map { Photo(number: $0) })
      try await queue.runAvailable()
      func count(_ label: String, _ end: String) throws -> Int {
        try metrics.expectTimer(
          label,
          [("queue", "photos"), ("task", "Photo"), ("end", end)]
        ).values.count
      }
      #expect(try count("steadfast_task_wait_seconds", "") == 3)
      #expect(try count("steadfast_task_run_seconds", "success") == 2)
      #expect(try count("steadfast_task_run_seconds", "Unreachable") == 1)
      // Each is made once, not at each attempt.
      #expect(factory.timerCount == 3)
    }
  }

  @Test func `the numbers of tasks are reported, also those that have become zero`() async throws {
    try await withBackends { _ in
      let queue = makeQueue()
      await queue.register(Photo.self) { _, _ in }
      try await queue.enqueue(contentsOf: [Photo(), Photo(number: 1)])
      var gauges = TaskGauges()
      func value(_ label: String) throws -> Double? {
        try metrics.expectGauge(
          label,
          [("queue", "photos"), ("task", "Photo"), ("state", "waiting")]
        ).lastValue
      }
      gauges.record(try await queue.census(maxAge: .zero))
      #expect(try value("steadfast_tasks") == 2)
      #expect(try value("steadfast_tasks_due") == 2)
      try await queue.runAvailable()
      gauges.record(try await queue.census(maxAge: .zero))
      #expect(try value("steadfast_tasks") == 0)
      #expect(try value("steadfast_tasks_due") == 0)
    }
  }

  @Test func `the span of an attempt links to the span that added the task`() async throws {
    try await withBackends { _ in
      let queue = makeQueue([TracingMiddleware()])
      await queue.register(Photo.self) { photo, _ in
        try await withSpan("upload") { _ in
          if photo.number == 1 { throw Unreachable() }
        }
        if photo.number == 2 { throw TaskSnoozed(for: .seconds(3600)) }
      }
      let tasks = try await withSpan("request") { _ in
        try await queue.enqueue(contentsOf: (0...2).map { Photo(number: $0) })
      }
      try await queue.runAvailable()
      let finished = tracer.finishedSpans
      func spans(named name: String) -> [FinishedInMemorySpan] {
        finished.filter { $0.operationName == name }
      }
      let request = try #require(spans(named: "request").first)
      let send = try #require(spans(named: "send").first)
      #expect(send.kind == .producer && send.parentSpanID == request.spanID)
      #expect(send.attributes.get("messaging.batch.message_count") == .int64(3))
      #expect(send.attributes.get("messaging.destination.name") == .string("photos"))
      let attempts = spans(named: "process Photo")
      #expect(attempts.map(\.kind) == [.consumer, .consumer, .consumer])
      #expect(
        attempts.map { $0.links.compactMap(\.context.inMemorySpanContext?.spanID) }
          == tasks.map { _ in [send.spanID] }
      )
      #expect(
        attempts.map { $0.attributes.get("messaging.message.id") }
          == tasks.map { .string("\($0.id)") }
      )
      #expect(
        attempts.map { $0.attributes.get("error.type") }
          == [nil, .string("Unreachable"), nil]
      )
      #expect(attempts.last?.attributes.get("steadfast.end") == .string("TaskSnoozed"))
      #expect(spans(named: "upload").map(\.parentSpanID) == attempts.map(\.spanID))
      #expect(attempts.map(\.errors.count) == [0, 1, 0])
      #expect(tracer.activeSpans.isEmpty)
    }
  }

  @Test func `a service group ends in time at SIGTERM, and no task is lost`() async throws {
    let count = 100
    try await withBackends { logger in
      let queue = makeQueue(
        [LoggingMiddleware(), TracingMiddleware(), MetricsMiddleware()],
        maxConcurrentTasks: count
      )
      let begun = Mutex(0)
      await queue.register(Photo.self) { _, _ in
        let number = begun.withLock {
          $0 += 1; return $0
        }
        if number == count { kill(getpid(), SIGTERM) }
        // It ends only when it is cancelled.
        for await _ in AsyncStream<Never>.makeStream().stream {}
        try Task.checkCancellation()
      }
      let tasks = try await queue.enqueue(contentsOf: (0..<count).map { Photo(number: $0) })
      let events = queue.events
      async let logged: Void = log(events, to: logger)
      var configuration = ServiceGroupConfiguration(
        services: [QueueService(queue: queue, gracePeriod: .milliseconds(500))],
        gracefulShutdownSignals: [.sigterm],
        logger: logger
      )
      // If the queue took longer, the group would throw.
      configuration.maximumGracefulShutdownDuration = .seconds(5)
      try await ServiceGroup(configuration: configuration).run()
      await logged
      let left = try await queue.tasks()
      #expect(Set(left.map(\.id)) == Set(tasks.map(\.id)))
      #expect(left.allSatisfy { $0.state == .waiting && $0.retryCount == 0 })
      let released = logs.entries.filter { "\($0.message)".hasPrefix("released: ") }
      #expect(
        Set(released.map { "\($0.metadata["task.id", default: ""])" })
          == Set(tasks.map { "\($0.id)" })
      )
      #expect(tracer.finishedSpans.count { $0.operationName == "process Photo" } == count)
      #expect(tracer.activeSpans.isEmpty)
    }
  }

  @Test func `probes answer as the queue is`() async throws {
    let queue = makeQueue()
    let router = Router()
    addProbes(for: queue, to: router)
    let responder = router.buildResponder()
    func statuses() async throws -> [HTTPResponse.Status] {
      var statuses: [HTTPResponse.Status] = []
      for path in ["/ready", "/alive"] {
        let head = HTTPRequest(method: .get, scheme: nil, authority: nil, path: path)
        let source = ApplicationRequestContextSource(
          channel: EmbeddedChannel(),
          logger: Logger(label: "test")
        )
        let request = Request(head: head, body: RequestBody(buffer: ByteBuffer()))
        let context = BasicRequestContext(source: source)
        statuses.append(try await responder.respond(to: request, context: context).status)
      }
      return statuses
    }
    #expect(try await statuses() == [.serviceUnavailable, .ok])
    let isRunning = AsyncStream<Void>.makeStream()
    await queue.register(Photo.self) { _, _ in isRunning.continuation.yield() }
    try await queue.enqueue(Photo())
    async let run: Void = queue.run()
    for await _ in isRunning.stream { break }
    #expect(try await statuses() == [.ok, .ok])
    await queue.shutDown()
    _ = try? await run
    #expect(try await statuses() == [.serviceUnavailable, .ok])
  }
}

/// Counts the timers that are made, because the test kit makes only one of each.
private final class CountingFactory: MetricsFactory {
  private let base: TestMetrics
  private let count = Mutex(0)

  var timerCount: Int { count.withLock(\.self) }

  init(_ base: TestMetrics) { self.base = base }

  func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    count.withLock { $0 += 1 }
    return base.makeTimer(label: label, dimensions: dimensions)
  }

  func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    base.makeCounter(label: label, dimensions: dimensions)
  }

  func makeRecorder(
    label: String,
    dimensions: [(String, String)],
    aggregate: Bool
  ) -> any RecorderHandler {
    base.makeRecorder(label: label, dimensions: dimensions, aggregate: aggregate)
  }

  func destroyTimer(_ handler: any TimerHandler) { base.destroyTimer(handler) }
  func destroyCounter(_ handler: any CounterHandler) { base.destroyCounter(handler) }
  func destroyRecorder(_ handler: any RecorderHandler) { base.destroyRecorder(handler) }
}
