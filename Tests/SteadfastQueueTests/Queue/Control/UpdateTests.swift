import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests updates of waiting tasks.
@Suite(.virtualTime) struct UpdateTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: any Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(
      backoff: .constant(.seconds(1_000))
    )
  ) async -> TaskQueue {
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    await queue.register(Note.self) { [log, clock] note, context in
      log.add("\(note.text) at \(clock.now.offset.components.seconds)")
      if note.text == "fails" { throw Refusal() }
    }
    return queue
  }

  @Test func `an empty tag is rejected`() async throws {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("a"), options: TaskOptions(tags: ["kept"]))
    let code = await errorCode { try await queue.update(task.id, tags: ["", "b"]) }
    #expect(code == .invalidArgument)
    #expect(try await queue.tasks().map(\.tags) == [["kept"]])
  }

  @Test func `metadata that is replaced or removed is checked first`() async throws {
    let queue = await makeQueue()
    let options = TaskOptions(metadata: ["tenant": "eins", "region": "eu"])
    let task = try await queue.enqueue(Note("a"), options: options)
    let code = await errorCode { try await queue.update(task.id, metadata: ["": "b"]) }
    #expect(code == .invalidArgument)
    #expect(try await queue.update(task.id, tags: ["t"]))
    #expect(try await queue.tasks().map(\.metadata) == [options.metadata])
    #expect(try await queue.update(task.id, with: Note("b"), metadata: ["tenant": "zwei"]))
    #expect(try await queue.count(matching: TaskFilter(metadata: ["tenant": "zwei"])) == 1)
    #expect(try await queue.tasks().map(\.metadata) == [["tenant": "zwei"]])
    #expect(try await queue.update(task.id, metadata: [:]))
    #expect(try await queue.tasks().map(\.metadata) == [[:]])
  }

  private func errorCode(of body: () async throws -> Void) async -> TaskQueueError.Code? {
    do {
      try await body()
      return nil
    } catch {
      return (error as? TaskQueueError)?.code
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a waiting task is performed with its new payload and priority`(kind: StoreKind) async throws
  {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      try await queue.enqueue(Note("first"))
      let task = try await queue.enqueue(Note("wrong"), availableDate: clock.date + 5)
      let last = try await queue.enqueue(Note("last"))
      #expect(try await queue.update(task.id, with: Note("right"), tags: ["red"]))
      #expect(try await queue.update(last.id, priority: .high))
      #expect(try await queue.tasks(matching: TaskFilter(tags: ["red"])).map(\.id) == [task.id])
      let time = try #require(VirtualTime.current)
      try await time.drain(queue)
    }
    #expect(log.entries == ["last at 0", "first at 0", "right at 5"])
  }

  @Test func `an update changes only the given properties`() async throws {
    let queue = await makeQueue()
    let expiry = clock.date + 500
    let id = try await queue.enqueue(
      Note("a"),
      availableDate: clock.date + 10,
      maxRetries: 3,
      usesBackoff: false,
      priority: .high,
      uniqueKey: "key",
      options: TaskOptions(expiryDate: expiry, timeLimit: .seconds(9), tags: ["red"])
    ).id
    func firstRecord() async throws -> TaskRecord { try await #require(queue.tasks().first) }
    let before = try await firstRecord()
    #expect(try await queue.update(id))
    #expect(try await queue.update(id, maxRetries: .alwaysRetry))
    var after = try await firstRecord()
    #expect(after.maxRetries == .alwaysRetry)
    #expect(after.priority == before.priority && after.tags == before.tags)
    #expect(after.usesBackoff == before.usesBackoff && after.timeLimit == before.timeLimit)
    #expect(after.expiryDate == before.expiryDate && after.uniqueKey == before.uniqueKey)
    #expect(after.availableDate == before.availableDate)
    #expect(try after.payload.bytes() == before.payload.bytes())
    #expect(
      try await queue.update(
        id,
        with: Note("b"),
        priority: .low,
        usesBackoff: true,
        timeLimit: .seconds(7),
        expiryDate: expiry + 1,
        tags: []
      )
    )
    after = try await firstRecord()
    #expect(try after.payload(as: Note.self) == Note("b"))
    #expect(after.priority == .low && after.tags.isEmpty && after.usesBackoff)
    #expect(after.timeLimit == .seconds(7) && after.expiryDate == expiry + 1)
    #expect(after.maxRetries == .alwaysRetry && after.uniqueKey == "key")
  }

  @Test
  func `updating a task that waits for its retry changes neither its date nor its retry count`()
    async throws
  {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("fails"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await queue.update(task.id, with: Note("works"), maxRetries: 1))
      #expect(try await queue.tasks().map(\.retryCount) == [1])
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(log.entries == ["fails at 0", "works at 1000"])
  }

  @Test func `updating a running task throws an error`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [log, clock] note, _ in
      try await clock.sleep(for: .seconds(60))
      log.add(note.text)
    }
    let task = try await queue.enqueue(Note("as it was"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(10))
      let error = await #expect(throws: TaskQueueError.self) {
        try await queue.update(task.id, with: Note("too late"))
      }
      #expect(error?.code == .isRunning)
      #expect(error?.message.contains("is being performed") == true)
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(log.entries == ["as it was"])
  }

  @Test func `updating an unknown or ended task has no effect`() async throws {
    let queue = await makeQueue(
      on: InMemoryStore(),
      configuration: TaskQueueConfiguration(succeededRetention: Retention(maxCount: 5))
    )
    let id = try await queue.enqueue(Note("a")).id
    try await queue.runAvailable()
    #expect(try await !queue.update(id, with: Note("b")))
    #expect(try await !queue.update(.numbered(7), priority: .high))
    #expect(try await queue.tasks(matching: TaskFilter()).map(\.state) == [.succeeded])
  }

  @Test func `an invalid update is rejected, and changes nothing`() async throws {
    struct Fax: TaskPayload { var text: String }
    struct Letter: TaskPayload {
      static let formerTaskNames = ["Note"]
      var text: String
    }
    let queue = await makeQueue()
    let id = try await queue.enqueue(Note("a"), availableDate: clock.date + 60).id
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.update(id, with: Fax(text: "b"))
    }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("the name 'Note'") == true)
    for code in [
      await errorCode { try await queue.update(id, with: Note("b"), maxRetries: .atMost(-1)) },
      await errorCode { try await queue.update(id, timeLimit: .zero) },
      await errorCode {
        try await queue.update(id, expiryDate: .init(timeIntervalSince1970: .nan))
      },
      await errorCode { try await queue.update(id, with: Note("b"), expiryDate: clock.date + 60) },
    ] { #expect(code == .invalidArgument) }
    let kept = try #require(try await queue.tasks().first)
    #expect(try kept.payload(as: Note.self) == Note("a"))
    #expect(kept.maxRetries == 10 && kept.timeLimit == nil && kept.expiryDate == nil)
    // A payload type that was renamed is accepted.
    #expect(try await queue.update(id, with: Letter(text: "c")))
  }

  @Test func `a task parked because of its payload is performed after an update`()
    async throws
  {
    let store = InMemoryStore()
    let broken = TaskRecord(
      id: .numbered(1),
      name: Note.taskName,
      payload: StoredPayload(Array("[]".utf8), format: .json),
      createdDate: clock.date,
      availableDate: clock.date
    )
    _ = try await store.apply([.insert(broken, onDuplicate: .keep)], durability: .durable)
    let queue = await makeQueue(on: store)
    try await queue.runAvailable()
    #expect(try await queue.tasks().map(\.state) == [.parked])
    #expect(try await queue.update(.numbered(1), with: Note("mended")))
    try await queue.runAvailable()
    #expect(log.entries == ["mended at 0"])
  }

  @Test func `an observer gets the event of an update after the update is stored`() async throws {
    let queue = await makeQueue()
    var events = queue.events.makeAsyncIterator()
    let id = try await queue.enqueue(Note("a")).id
    try await queue.update(id, priority: .high)
    guard case .enqueued = await events.next() else {
      Issue.record("the first event isn't the new task")
      return
    }
    guard case .updated(id) = await events.next() else {
      Issue.record("the second event isn't the update")
      return
    }
  }

  @Test func `a payload that makes the task too large is rejected`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(maxTaskSize: 1_000)
      let store = JSONFileStore(at: file, options: options)
      let queue = await makeQueue(on: store)
      let key = String(repeating: "k", count: 600)
      let id = try await queue.enqueue(Note("small"), uniqueKey: key).id
      let error = await #expect(throws: JSONFileError.self) {
        try await queue.update(id, with: Note(String(repeating: "x", count: 600)))
      }
      #expect(error?.code == .taskTooLarge)
      #expect(try await queue.update(id, with: Note("short")))
      try await store.close()
      let next = JSONFileStore(at: file, options: options)
      let reopened = TaskQueue(persistence: next, clock: clock)
      await reopened.register(Note.self) { [log] note, _ in log.add(note.text) }
      #expect(try await reopened.runAvailable() == 1)
      try await next.close()
    }
    #expect(log.entries == ["short"])
  }

  @Test func `a new payload is sealed for its task`() async throws {
    let base = InMemoryStore()
    let queue = await makeQueue(on: base.sealingPayloads(with: TestSeal().payloadSeal))
    let id = try await queue.enqueue(Note("wrong")).id
    #expect(try await queue.update(id, with: Note("secret")))
    let kept = try #require(
      try await base.tasks(matching: TaskFilter(), after: nil, limit: 1).first
    )
    #expect(kept.payload.format == .sealedJSON)
    #expect(try !String(decoding: kept.payload.bytes(), as: UTF8.self).contains("secret"))
    #expect(try await queue.runAvailable() == 1)
    #expect(log.entries == ["secret at 0"])
  }
}
