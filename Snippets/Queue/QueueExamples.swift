//! Short examples: making a queue, changing its tasks, and writing handlers.

import Foundation
import SteadfastQueue

struct PostComment: TaskPayload { var text: String }
struct Upload: TaskPayload {
  var copy: URL

  init(_ copy: URL) { self.copy = copy }
}
struct Mail: TaskPayload { var address: String }
struct Export: TaskPayload { var account: String }
struct Report: TaskPayload {}
struct SendReceipt: TaskPayload { var order: Int }

/// A service that accepts all.
struct Service: Sendable {
  func post(_ text: String, idempotencyKey: String) async throws {}
}

struct Battery { var isCharging = true }

struct Inbox: Sendable { func fetch() async throws -> Bool { true } }

/// A charger whose state is known when it is connected.
final class Charger: Sendable {
  let report: @Sendable (Bool) -> Void

  init(_ report: @escaping @Sendable (Bool) -> Void) { self.report = report }

  func connect() { report(true) }

  func disconnect() {}
}

/// A connection to a database of one's own.
struct Connection { func execute(_ text: String, _ parameters: [SQLParameter]) throws {} }

func send(_ upload: Upload) async throws {}
func syncEverything() async throws {}

func begin(at url: URL, _ api: Service) async throws {
  // snippet.first
  struct PostComment: TaskPayload { var text: String }

  let queue = TaskQueue(persistence: .jsonFile(at: url))
  await queue.register(PostComment.self) { comment, context in
    try await api.post(comment.text, idempotencyKey: context.id.description)
  }
  try await queue.enqueue(PostComment(text: "so important"))
  try await queue.run()
  // snippet.end
}

func keep(at url: URL) async throws {
  // snippet.file
  let queue = TaskQueue(persistence: .jsonFile(at: url))
  // snippet.end
  try await queue.open()
}

func run(_ uploads: [Upload], in queue: TaskQueue) async throws {
  // snippet.idle
  async let run: Void = queue.run()
  try await queue.enqueue(contentsOf: uploads)
  try await queue.waitUntilIdle()
  // snippet.end
  await queue.shutDown()
  try await run
}

func group(at url: URL, _ fewWorkers: TaskQueueConfiguration) async throws {
  // snippet.group
  let group = TaskQueueGroup(persistence: .jsonFile(at: url))
  let uploads = try await group.addQueue("uploads", configuration: fewWorkers)
  await uploads.register(Upload.self) { upload, _ in try await send(upload) }
  try await group.enqueue(Upload(url), on: "uploads")
  try await group.run()
  // snippet.end
}

func handle(_ queue: TaskQueue) async {
  // snippet.performable
  struct Sync: PerformableTask {
    func perform(in context: TaskContext) async throws {
      try await syncEverything()
    }
  }
  await queue.register(Sync.self)
  // snippet.end
  // snippet.handler
  struct Uploader: TaskHandler {
    func perform(_ upload: Upload, in context: TaskContext) async throws {
      try await send(upload)
    }
    func willEnd(
      _ upload: Upload,
      outcome: TaskOutcome,
      in context: TaskContext
    ) async {
      // A dead letter may be retried.
      guard outcome == .succeeded else { return }
      try? FileManager.default.removeItem(at: upload.copy)
    }
  }
  await queue.register(handler: Uploader())
  // snippet.end
}

func wait(_ queue: TaskQueue, _ battery: Battery, _ file: URL) async throws {
  // snippet.condition
  await queue.setCondition("charging", holds: battery.isCharging)
  // snippet.end
  // snippet.network
  await queue.register(NetworkMonitor(), for: .network)
  try await queue.enqueue(
    Upload(file),
    options: TaskOptions(conditions: [.network])
  )
  // snippet.end
}

// snippet.monitor
struct ChargerMonitor: ConditionMonitor {
  func values() -> AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let charger = Charger { continuation.yield($0) }
      continuation.onTermination = { _ in charger.disconnect() }
      charger.connect()
    }
  }
}
// snippet.end

func configure() -> TaskQueueConfiguration {
  // snippet.limits
  let configuration = TaskQueueConfiguration(
    maxConcurrentTasks: 8,
    rateLimits: [
      .atMost(10, per: .seconds(1)),
      .atMost(100, per: .seconds(60), of: Mail.self),
      .atMost(50, per: .seconds(86_400), of: Export.self, key: \.account),
    ]
  )
  // snippet.end
  return configuration
}

func schedule(_ queue: TaskQueue, in berlin: TimeZone) async throws {
  // snippet.schedule
  let rule = try ScheduleRule.daily(at: .time(2, 30), in: berlin)
  try await queue.schedule("nightly", rule, Report())
  // snippet.end
}

func values(_ queue: TaskQueue, _ me: [UInt8]) async throws {
  // snippet.value
  let bytes = try await queue.value(named: "cursor")
  let page = bytes.map { String(decoding: $0, as: UTF8.self) }
  // snippet.end
  // snippet.leader
  // The first process leads, until it removes the value.
  let isLeader = try await queue.setValue(me, named: "leader", replacing: nil)
  // snippet.end
  print(page ?? "from the beginning", isLeader)
}

func insert(_ number: Int, _ queue: TaskQueue, _ connection: Connection) throws {
  // snippet.statement
  let statement = try queue.insertStatement(for: SendReceipt(order: number))
  try connection.execute(statement.text, statement.parameters)
  // snippet.end
}

func pass(at url: URL, _ inbox: Inbox) async throws {
  // snippet.pass
  let scheduler = BackgroundScheduler(persistence: .jsonFile(at: url))
  await scheduler.register(
    "inbox",
    priority: .veryHigh,
    expectedDuration: .seconds(5)
  ) {
    try await inbox.fetch() ? .newData : .noData
  }
  let result = try await scheduler.run(within: .seconds(25))
  // snippet.end
  print(result)
}

struct DatabaseError: Error {
  var isConnectionLost: Bool
  var isSerializationFailure: Bool
}

// snippet.transient
extension DatabaseError: PersistenceError {
  var isTransient: Bool { isConnectionLost || isSerializationFailure }
}
// snippet.end

let queue = TaskQueue(configuration: configure())
await handle(queue)
try await run([], in: queue)
