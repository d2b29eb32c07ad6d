import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// The payload as the old version of a program knows it.
private struct OldLetter: TaskPayload {
  static let taskName = "Letter"
  var text: String
}

/// The payload as the new version of the program knows it.
private struct Letter: TaskPayload {
  static let taskName = "Letter"
  static let schemaVersion = 2
  var text: String
}

/// Tests queues whose stores contain tasks of a newer version of the program.
@Suite(.virtualTime) struct PayloadVersionTests {
  private let clock: VirtualClock
  private let log = Log<String>()
  private let notices = Log<String>()
  private let newer = """
    the payload of 'Letter' has the schema version 2, but this version of the program knows \
    'Letter' up to 1; run the version that stored it, or a later one
    """

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: some Persistence) -> TaskQueue {
    let configuration = TaskQueueConfiguration(
      maxConcurrentTasks: 2,
      notice: { [notices] in notices.add($0) }
    )
    return TaskQueue(
      persistence: store,
      configuration: configuration,
      clock: clock
    )
  }

  private func makeOldQueue(on store: some Persistence) async -> TaskQueue {
    let queue = makeQueue(on: store)
    await queue.register(OldLetter.self) { [log] letter, _ in log.add("old: \(letter.text)") }
    return queue
  }

  private func makeNewQueue(on store: some Persistence) async -> TaskQueue {
    let queue = makeQueue(on: store)
    await queue.register(Letter.self) { [log] letter, _ in log.add("new: \(letter.text)") }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue leaves tasks of a newer version to a newer program`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let old = await makeOldQueue(on: store)
      try await old.enqueue(Letter(text: "a"), priority: .high)
      try await old.enqueue(OldLetter(text: "b"))
      #expect(try await old.runAvailable() == 1)
      #expect(log.entries == ["old: b"])
      let left = try await old.tasks()
      #expect(left.map(\.state) == [.waiting])
      #expect(left.map(\.failures.count) == [0])
      let filter = TaskFilter(unhandledBy: ["Letter": 1])
      #expect(try await old.tasks(matching: filter).map(\.id) == left.map(\.id))
      #expect(try await old.tasks(matching: TaskFilter(unhandledBy: ["Letter": 2])).isEmpty)
      await old.shutDown()
      let new = await makeNewQueue(on: store)
      try await new.enqueue(OldLetter(text: "c"))
      #expect(try await new.runAvailable() == 2)
      #expect(log.entries == ["old: b", "new: a", "new: c"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `another payload may make a task one of a newer version, or of an older one`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeOldQueue(on: store)
      let newer = try await queue.enqueue(Letter(text: "a"))
      let older = try await queue.enqueue(OldLetter(text: "b"), uniqueKey: "b")
      try await queue.update(newer.id, with: OldLetter(text: "c"))
      try await queue.enqueue(Letter(text: "d"), uniqueKey: "b", onDuplicate: .replace)
      #expect(try await queue.runAvailable() == 1)
      #expect(log.entries == ["old: c"])
      #expect(try await queue.contains(older.id))
    }
  }

  @Test func `a fallback handler performs tasks of other names in any version`() async throws {
    let queue = await makeOldQueue(on: InMemoryStore())
    await queue.registerFallback { [log] payload, context in
      log.add("\(context.name): \(payload["text"]?.string ?? "")")
    }
    try await queue.enqueue(Letter(text: "a"))
    try await queue.enqueue(Note("b"))
    #expect(try await queue.runAvailable() == 1)
    #expect(log.entries == ["Note: b"])
    #expect(notices.entries == ["the queue 'default' has waiting tasks: \(newer)"])
  }

  @Test func `the queue warns about a task of a newer version, once`() async throws {
    let queue = await makeOldQueue(on: InMemoryStore())
    try await queue.enqueue(Letter(text: "a"))
    try await queue.enqueue(Letter(text: "b"))
    try await queue.runAvailable()
    try await queue.enqueue(Letter(text: "c"))
    try await queue.runAvailable()
    #expect(notices.entries == ["the queue 'default' has waiting tasks: \(newer)"])
  }

  @Test func `an event reports each task of a newer version`() async throws {
    let store = InMemoryStore()
    let queue = await makeOldQueue(on: store)
    let before = try await queue.enqueue(Letter(text: "a"))
    let events = queue.events
    try await queue.runAvailable()
    let after = try await queue.enqueue(Letter(text: "b"))
    await queue.shutDown()
    var reported: [TaskID] = []
    for await case .unhandled(let record, let reason) in events {
      #expect(reason == newer)
      reported.append(record.id)
    }
    #expect(reported == [before.id, after.id])
    #expect(notices.entries == [])
  }

  /// Parks a task as a program does that can't decode its payload.
  private func park(
    _ task: EnqueuedTask,
    knowing version: Int?,
    in store: some Persistence
  ) async throws {
    let request = ClaimRequest(
      limit: 1,
      names: ["Letter": 1],
      now: clock.date,
      leaseDuration: store.sharing?.leaseDuration
    )
    let claim = try await store.claim(request)
    let lease = try #require(claim.tasks.first).lease
    #expect(lease.id == task.id)
    let failure = TaskFailure(reason: "unreadable", date: clock.date)
    let park = TaskChange.park(lease, failure: failure, knownVersion: version)
    #expect(try await store.apply([park], durability: .durable) == [.done])
  }

  @Test(arguments: [nil, 1])
  func `a running queue tries what an older program has parked, at the next poll`(
    version: Int?
  ) async throws {
    let store = SharedStore(StoreSharing(pollInterval: .seconds(5)))
    let process = store.process()
    let queue = await makeNewQueue(on: store.process())
    let writer = makeQueue(on: process)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      let task = try await writer.enqueue(Letter(text: "a"))
      try await park(task, knowing: version, in: process)
      try await clock.sleep(for: .seconds(3))
      #expect(log.entries == [])
      try await queue.waitUntilRemoved(task.id, on: clock)
      #expect(clock.now.offset <= .seconds(10))
    }
    #expect(log.entries == ["new: a"])
  }

  @Test(arguments: [2, 3])
  func `a task that a program of the same version has parked is not tried at each poll`(
    version: Int
  ) async throws {
    let store = SharedStore(StoreSharing(pollInterval: .seconds(5)))
    let process = store.process()
    let queue = await makeNewQueue(on: store.process())
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      let task = try await makeQueue(on: process).enqueue(Letter(text: "a"))
      try await park(task, knowing: version, in: process)
      try await clock.sleep(for: .seconds(60))
      #expect(try await queue.tasks().map(\.state) == [.parked])
      #expect(try await queue.tasks().map(\.parkedVersion) == [version])
    }
    // A run tries all parked tasks once.
    try await makeNewQueue(on: store.process()).runAvailable()
    #expect(log.entries == ["new: a"])
  }

  @Test func `a queue records the version that it knew with a task that it parks`() async throws {
    let queue = await makeNewQueue(on: InMemoryStore())
    let payload: JSONValue = ["subject": "no text"]
    let task = try await queue.enqueue(name: "Letter", payload)
    try await queue.runAvailable()
    let record = try #require(try await queue.tasks().first)
    #expect(record.id == task.id)
    #expect(record.state == .parked)
    #expect(record.parkedVersion == 2)
  }

  @Test(arguments: 0..<20)
  func `a rolling deployment performs all tasks, and parks none`(seed: UInt64) async throws {
    let store = SharedStore(StoreSharing(leaseDuration: .seconds(30), pollInterval: .seconds(5)))
    let log = log
    let clock = clock
    var random = Randomness.seeded(seed).makeGenerator()
    let delays = (0..<3).map { _ in Duration.seconds(Int.random(in: 5...60, using: &random)) }
    let writes = (0..<200).map { _ in
      (isNew: Bool.random(using: &random), delay: Int.random(in: 0...800, using: &random))
    }
    try await withThrowingTaskGroup { group in
      for delay in delays {
        group.addTask {
          let old = await makeOldQueue(on: store.process())
          try await withRunning(old) { try await clock.sleep(for: delay) }
          let new = await makeNewQueue(on: store.process())
          try await withRunning(new) { try await clock.sleep(for: .seconds(150) - delay) }
        }
      }
      let writer = makeQueue(on: store.process())
      for (number, write) in writes.enumerated() {
        if write.isNew {
          try await writer.enqueue(Letter(text: "\(number)"))
        } else {
          try await writer.enqueue(OldLetter(text: "\(number)"))
        }
        try await clock.sleep(for: .milliseconds(write.delay))
      }
      try await group.waitForAll()
    }
    let performed = log.entries.map { $0.split(separator: " ").last.flatMap { Int($0) } }
    #expect(performed.compactMap(\.self).sorted() == Array(writes.indices))
    for (number, write) in writes.enumerated() where write.isNew {
      #expect(!log.entries.contains("old: \(number)"))
    }
    let left = try await makeQueue(on: store.process()).tasks(matching: TaskFilter())
    #expect(left.isEmpty)
  }
}
