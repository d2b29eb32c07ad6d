import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests code that runs around all calls that add tasks, and around all attempts.
@Suite(.virtualTime) struct MiddlewareTests {
  @TaskLocal private static var tenant = "none"

  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Middleware made of closures.
  private struct Around: TaskMiddleware {
    var adding: @Sendable ([TaskDraft], EnqueueChain) async throws -> Void = {
      try await $1($0)
    }
    var performing: @Sendable (TaskContext, AttemptChain) async throws -> Void = {
      try await $1()
    }

    func enqueue(_ tasks: [TaskDraft], next: EnqueueChain) async throws {
      try await adding(tasks, next)
    }

    func perform(_ context: TaskContext, next: AttemptChain) async throws {
      try await performing(context, next)
    }
  }

  /// Middleware that has only the defaults.
  private struct Nothing: TaskMiddleware {}

  /// A task that performs itself.
  private struct Photo: PerformableTask {
    static let taskName = "Photo"

    func perform(in context: TaskContext) async throws -> Int { context.retryCount }
  }

  private struct LetterHandler: TaskHandler {
    struct Payload: TaskPayload { static let taskName = "Letter" }
    let log: Log<String>

    func perform(_ payload: Payload, in context: TaskContext) async throws { log.add("letter") }
  }

  private func makeQueue(
    _ middleware: [any TaskMiddleware],
    on store: any Persistence = InMemoryStore()
  ) -> TaskQueue {
    TaskQueue(
      name: "mails",
      persistence: store,
      configuration: TaskQueueConfiguration(
        middleware: middleware,
        succeededRetention: .forever,
        abandonedRetention: .forever,
        cancelledRetention: .forever
      ),
      clock: clock
    )
  }

  private func logging(_ name: String) -> Around {
    Around { [log] tasks, next in
      log.add("\(name) adds \(tasks.map(\.name))")
      defer { log.add("\(name) has added") }
      try await next(tasks)
    } performing: { [log] context, next in
      log.add("\(name) performs \(context.name)")
      defer { log.add("\(name) has performed") }
      try await next()
    }
  }

  // MARK: Order

  @Test func `the first middleware is the outermost one, for each kind of handler`() async throws {
    let queue = makeQueue([logging("a"), Nothing(), logging("b")])
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    await queue.register(Photo.self)
    await queue.register(handler: LetterHandler(log: log))
    try await queue.enqueue(Note("note"))
    let photo = try await queue.enqueue(Photo())
    try await queue.enqueue(LetterHandler.Payload())
    func around(_ name: String) -> [String] {
      ["a adds [\"\(name)\"]", "b adds [\"\(name)\"]", "b has added", "a has added"]
    }
    #expect(log.entries == around("Note") + around("Photo") + around("Letter"))
    let before = log.count
    #expect(try await queue.runAvailable() == 3)
    func inside(_ name: String, _ lines: [String]) -> [String] {
      ["a performs \(name)", "b performs \(name)"] + lines + ["b has performed", "a has performed"]
    }
    #expect(
      Array(log.entries[before...])
        == inside("Note", ["note"]) + inside("Photo", []) + inside("Letter", ["letter"])
    )
    #expect(try await photo.value(as: Int.self) == 0)
  }

  // MARK: Adding tasks

  @Test(arguments: StoreKind.allCases)
  func `middleware sets metadata and tags of each task of each call`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let setting = Around { [log] tasks, next in
        log.add("\(tasks.count) for \(tasks[0].queue)")
        try await next(
          tasks.enumerated().map { number, task in
            var task = task
            task.metadata["place"] = "\(number)"
            task.tags.insert("marked")
            return task
          }
        )
      }
      let queue = makeQueue([setting], on: store)
      await queue.register(Note.self) { note, context in
        if note.text == "parent" { try await context.enqueue(Note("child")) }
      }
      try await queue.enqueue(Note("parent"), options: TaskOptions(metadata: ["user": "7"]))
      try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
      try await queue.enqueue { tasks in
        let first = try tasks.add(Note("c"))
        try tasks.add(Note("d"), options: TaskOptions(dependencies: [first]))
      }
      try await queue.enqueue(contentsOf: [Note("e")], then: Note("f"))
      try await queue.enqueue(contentsOf: [Note]())
      _ = try await queue.runAvailable()
      let tasks = try await queue.tasks(matching: TaskFilter())
      #expect(tasks.allSatisfy { $0.tags == ["marked"] && $0.state == .succeeded })
      // The ID of a batch's follower comes before those of the batch.
      let places = tasks.map { $0.metadata["place"] ?? "none" }
      #expect(places == ["0", "0", "1", "0", "1", "1", "0", "0"])
      // A task inherits the metadata of the task whose handler adds it.
      let users = tasks.enumerated().filter { $0.element.metadata["user"] != nil }.map(\.offset)
      #expect(users == [0, 7])
      #expect(log.entries == [1, 2, 2, 2, 1].map { "\($0) for mails" })
    }
  }

  @Test func `middleware can refuse tasks, and can't exchange them`() async throws {
    let cases: [(Around, String)] = [
      (Around { _, _ in throw Refusal("closed") }, "closed"),
      (Around { tasks, next in try await next(tasks.dropLast()) }, "other tasks"),
      (Around { tasks, next in try await next(tasks.reversed()) }, "other tasks"),
      (Around { _, _ in }, "without adding"),
      (
        Around { tasks, next in
          var tasks = tasks
          tasks[1].tags = [""]
          try await next(tasks)
        }, "tags"
      ),
      // These tasks were added: an error afterwards can't undo this.
      (Around { tasks, next in for _ in 0..<2 { try await next(tasks) } }, "again"),
      (
        Around { tasks, next in
          try await next(tasks)
          throw Refusal("late")
        }, "late"
      ),
    ]
    for (index, (middleware, text)) in cases.enumerated() {
      let queue = makeQueue([Nothing(), middleware])
      let error = await #expect(throws: (any Error).self) {
        try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
      }
      #expect("\(error!)".contains(text))
      #expect(try await queue.count == (index >= 5 ? 2 : 0))
    }
    let tooLarge = makeQueue([
      Around { tasks, next in
        try await next(
          tasks.map { task in
            var task = task
            task.metadata = ["key": String(repeating: "x", count: 5_000)]
            return task
          }
        )
      }
    ])
    let error = await queueError { try await tooLarge.enqueue(Note("a")) }
    #expect(error?.code == .invalidArgument && error?.message.contains("metadata") == true)
    #expect(try await tooLarge.count == 0)
  }

  @Test func `middleware can try again after an error, and get the tasks`() async throws {
    let queue = makeQueue([
      Around { tasks, next in
        var tasks = tasks
        tasks[0].tags = [""]
        await #expect(throws: TaskQueueError.self) { try await next(tasks) }
        tasks[0].tags = []
        let added = try await next(tasks)
        #expect(added.map(\.id) == tasks.map(\.id) && added.allSatisfy(\.isNew))
      }
    ])
    let task = try await queue.enqueue(Note("a"))
    #expect(try await queue.tasks().map(\.id) == [task.id])
  }

  @Test func `a call is made again with other IDs if one is in use, whatever middleware throws`()
    async throws
  {
    // Two queues with one seed make the same IDs.
    let store = InMemoryStore()
    let queues = (0..<2).map { _ in
      TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(
          middleware: [
            Around { [log] tasks, next in
              log.add("call")
              do { try await next(tasks) } catch { throw Refusal("\(error)") }
            }
          ],
          randomness: .seeded(7)
        ),
        clock: clock
      )
    }
    let first = try await queues[0].enqueue(Note("a"))
    let second = try await queues[1].enqueue(Note("b"))
    #expect(first.id != second.id && log.count == 3)
    #expect(try await queues[0].count == 2)
  }

  @Test func `occurrences are added without middleware`() async throws {
    let queue = makeQueue([Around { _, _ in throw Refusal() }])
    await queue.register(Note.self) { _, _ in }
    try await queue.schedule("hourly", try .hourly(minute: 0), Note("a"))
    #expect(try await queue.count == 1)
    await #expect(throws: Refusal.self) { try await queue.enqueue(Note("b")) }
  }

  @Test func `a task that exists is returned through middleware, and keeps its metadata`()
    async throws
  {
    let queue = makeQueue([
      Around { tasks, next in
        _ = try await next(
          tasks.map { task in
            var task = task
            task.metadata["id"] = "\(task.id)"
            return task
          }
        )
      }
    ])
    let first = try await queue.enqueue(Note("a"), uniqueKey: "k")
    let second = try await queue.enqueue(Note("b"), uniqueKey: "k")
    #expect(second.id == first.id)
    #expect(try await first.record()?.metadata == ["id": "\(first.id)"])
  }

  // MARK: Performing

  /// Performs a task whose handler throws or waits, and returns the task.
  private func perform(
    _ middleware: Around,
    maxRetries: RetryLimit = 0,
    _ handler: @escaping @Sendable (TaskContext) async throws -> Void
  ) async throws -> TaskRecord {
    let queue = makeQueue([middleware])
    await queue.register(Note.self) { [log] _, context in
      log.add("handler")
      try await handler(context)
    }
    let task = try await queue.enqueue(Note("a"), maxRetries: maxRetries)
    _ = try await queue.runAvailable()
    return try #require(try await task.record())
  }

  @Test func `middleware sees the error itself, and its own error counts`() async throws {
    let seen = Log<String>()
    let task = try await perform(
      Around(performing: { _, next in
        do {
          try await next()
        } catch let error as Refusal {
          seen.add(error.description)
          throw Refusal("translated")
        }
      })
    ) { _ in throw Refusal("original") }
    #expect(seen.entries == ["original"])
    #expect(task.state == .abandoned && task.lastError == "translated")
  }

  @Test func `middleware that catches an error has done the task`() async throws {
    let task = try await perform(
      Around(performing: { _, next in try? await next() })
    ) { _ in throw Refusal() }
    #expect(task.state == .succeeded && log.count == 1)
  }

  @Test func `middleware that doesn't call next has done the task without its handler`()
    async throws
  {
    let task = try await perform(Around(performing: { _, _ in })) { _ in }
    #expect(task.state == .succeeded && log.count == 0)
  }

  @Test func `middleware that calls next again calls the handler again in the same attempt`()
    async throws
  {
    let task = try await perform(
      Around(performing: { _, next in
        do { try await next() } catch { try await next() }
      })
    ) { [log] context in
      if log.count == 1 { throw Refusal() }
      #expect(context.retryCount == 0)
    }
    #expect(task.state == .succeeded && task.failures.isEmpty && log.count == 2)
  }

  @Test func `if the handler is called again, its finished steps are not repeated`() async throws {
    let task = try await perform(
      Around(performing: { _, next in
        do { try await next() } catch { try await next() }
      })
    ) { [log] context in
      let number = try await context.step("charge") { _ in
        log.add("charge")
        return 7
      }
      #expect(number == 7)
      if log.entries.count(where: { $0 == "handler" }) == 1 { throw Refusal() }
    }
    #expect(task.state == .succeeded && task.failures.isEmpty)
    #expect(log.entries == ["handler", "charge", "handler"])
  }

  @Test func `a time limit of middleware counts as a failure`() async throws {
    let task = try await perform(
      Around(performing: { [clock] _, next in
        try await withTimeout(.seconds(3), clock: clock) { try await next() }
      })
    ) { [clock] _ in try await clock.sleep(for: .seconds(100)) }
    #expect(task.state == .abandoned && task.failedAttempt?.kind == .timedOut)
  }

  @Test func `a handler that suspends its task does so through middleware`() async throws {
    let seen = Log<String>()
    let queue = makeQueue([
      Around(performing: { _, next in
        do { try await next() } catch { seen.add("\(type(of: error))") }
      })
    ])
    await queue.register(Note.self) { [log] _, context in
      try await context.sleep("night", for: .seconds(60))
      log.add("awake")
    }
    let task = try await queue.enqueue(Note("a"))
    _ = try await queue.runAvailable()
    #expect(try await task.record()?.state == .suspended && seen.entries == ["TaskSuspended"])
    clock.advance(by: .seconds(61))
    _ = try await queue.runAvailable()
    #expect(try await task.record()?.state == .succeeded && log.entries == ["awake"])
  }

  @Test func `middleware can put a task off without a retry`() async throws {
    let task = try await perform(
      Around(performing: { _, _ in throw TaskSnoozed(for: .seconds(60)) })
    ) { _ in }
    #expect(task.state == .waiting && task.retryCount == 0)
    #expect(task.availableDate == clock.date + 60)
  }

  @Test func `middleware can't turn a payload that can't be decoded into a success`() async throws {
    let queue = makeQueue([Around(performing: { _, next in try? await next() })])
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(name: "Note", .integer(1))
    _ = try await queue.runAvailable()
    #expect(try await task.record()?.state == .parked)
  }

  @Test func `middleware can't turn a cancellation into a success, and sees it`() async throws {
    let seen = Log<String>()
    let queue = makeQueue([
      Around(performing: { _, next in
        do { try await next() } catch { seen.add("\(type(of: error))") }
      })
    ])
    let begun = AsyncSignal()
    await queue.register(Note.self) { [clock] _, _ in
      begun.signal()
      try await clock.sleep(for: .seconds(1_000))
    }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      await begun.wait()
      let isCancelled = try await task.cancel()
      #expect(isCancelled)
      #expect(try await task.outcome() == .cancelled)
    }
    #expect(seen.entries == ["CancellationError"])
  }

  @Test func `a time limit is within next, and ends with an error that middleware sees`()
    async throws
  {
    let seen = Log<String>()
    let queue = makeQueue([
      Around(performing: { context, next in
        do {
          try await Self.$tenant.withValue("t7") { try await next() }
        } catch {
          seen.add("\(context.queueName) \(type(of: error))")
          throw error
        }
      })
    ])
    await queue.register(Note.self) { [clock, log] _, context in
      log.add(Self.tenant)
      let name = try await context.step("look") { _ in Self.tenant }
      log.add(name)
      try await clock.sleep(for: .seconds(100))
    }
    let options = TaskOptions(timeLimit: .seconds(5))
    let task = try await queue.enqueue(Note("a"), maxRetries: 0, options: options)
    try await withRunning(queue) { _ = try await task.outcome() }
    #expect(log.entries == ["t7", "t7"])
    #expect(seen.entries == ["mails TimeoutError"])
    #expect(try await task.record()?.failedAttempt?.kind == .timedOut)
  }

  @Test func `a task says how long it has waited since it was available`() async throws {
    let waits = Log<Duration>()
    let queue = makeQueue([Around(performing: { context, _ in waits.add(context.waited) })])
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    try await queue.enqueue(Note("b"), delay: .seconds(3))
    clock.advance(by: .seconds(10))
    _ = try await queue.runAvailable()
    #expect(waits.entries.sorted() == [.seconds(7), .seconds(10)])
  }
}
