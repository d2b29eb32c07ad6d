import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests strings with the character NUL, which PostgreSQL can't store.
@Suite(.virtualTime) struct TextFormTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private typealias Enqueuing = @Sendable (TaskQueue) async throws -> Void

  /// Calls with a NUL in a string, each with the parameter that the error names.
  private static let calls: [(String, Enqueuing)] = [
    ("name", { try await $0.enqueue(name: "a\0b") }),
    ("uniqueKey", { try await $0.enqueue(Note("a"), uniqueKey: "\0") }),
    ("tags", { try await $0.enqueue(Note("a"), options: TaskOptions(tags: ["plain", "a\0"])) }),
    ("tags", { _ = try await $0.update(.numbered(1), tags: ["\0a"]) }),
    (
      "a key of metadata",
      { try await $0.enqueue(Note("a"), options: TaskOptions(metadata: ["a\0": "b"])) }
    ),
    (
      "the value of 'a' in metadata",
      { try await $0.enqueue(Note("a"), options: TaskOptions(metadata: ["a": "\0"])) }
    ),
    (
      "the value of 'a' in metadata",
      { _ = try await $0.update(.numbered(1), metadata: ["a": "\0"]) }
    ),
  ]

  @Test(arguments: TextFormTests.calls.indices)
  func `a string with a NUL is rejected, and the error names the parameter`(index: Int) async throws
  {
    let (word, call) = Self.calls[index]
    let queue = TaskQueue(clock: clock)
    let error = await queueError { try await call(queue) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.hasPrefix(word) == true)
    #expect(error?.message.contains("NUL") == true)
    #expect(try await queue.count == 0)
  }

  @Test func `default tags with a NUL are rejected by the first call of the queue`() async {
    var configuration = TaskQueueConfiguration()
    configuration.taskDefaults.tags = ["\0"]
    let queue = TaskQueue(configuration: configuration, clock: clock)
    let error = await queueError { try await queue.open() }
    #expect(error?.message.hasPrefix("taskDefaults.tags") == true)
  }

  @Test func `a handler for a name with a NUL is rejected`() async {
    let queue = TaskQueue(clock: clock)
    await queue.register(name: "a\0b") { _, _ in }
    let error = await queueError { try await queue.open() }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("NUL") == true)
  }

  @Test(arguments: StoreKind.allCases)
  func `a NUL in the message of a failure is replaced by another character`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.register(Note.self) { _, _ in throw Refusal("a\0b\0") }
      let events = queue.events
      try await queue.enqueue(Note("a"), maxRetries: 1)
      async let run: Void = queue.run()
      var reasons: [String] = []
      for await event in events {
        if case .failed(_, let reason, _, _) = event { reasons.append(reason) }
        guard case .abandoned(let record, let reason, _) = event else { continue }
        reasons.append(reason)
        #expect(record.lastError == "a\u{FFFD}b\u{FFFD}")
        break
      }
      #expect(reasons == ["a\u{FFFD}b\u{FFFD}", "a\u{FFFD}b\u{FFFD}"])
      await queue.shutDown()
      try await run
      let deadLetters = try await store.tasks(matching: .deadLetters, after: nil, limit: 1)
      #expect(deadLetters.first?.failures.map(\.reason) == reasons)
    }
  }

  @Test func `a long message of NULs is shortened to the limit`() throws {
    let judge = AttemptJudge(TaskQueueConfiguration())
    var generator = SplitMix64(seed: 0)
    let verdict = judge.verdict(
      on: .make(1),
      after: .threw(Refusal(String(repeating: "\0", count: 5000))),
      command: nil,
      at: AttemptJudge.Moment(now: .seconds(0)),
      using: &generator
    )
    guard case .retry(_, _, let failure, _) = verdict else {
      Issue.record("\(verdict)")
      return
    }
    #expect(failure.reason.utf8.count <= AttemptJudge.longestReason)
    #expect(failure.reason.unicodeScalars.allSatisfy { $0 == "\u{FFFD}" || $0 == "…" })
  }

  @Test(arguments: StoreKind.allCases)
  func `a store rejects a change with a NUL in a string`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let lease = Lease(id: .numbered(1), token: 1)
      let failure = TaskFailure(reason: "a\0", date: .seconds(0))
      func tagged(_ tags: Set<String>) -> TaskRecord {
        var record = TaskRecord.make(1)
        record.apply(TaskUpdate(tags: tags))
        return record
      }
      func described(_ metadata: [String: String]) -> TaskRecord {
        var record = TaskRecord.make(1)
        record.apply(TaskUpdate(metadata: metadata))
        return record
      }
      func failed(_ failures: String...) -> TaskRecord {
        var record = TaskRecord.make(1)
        for reason in failures { record.note(TaskFailure(reason: reason, date: .seconds(0))) }
        return record
      }
      var attempted = TaskRecord.make(1)
      attempted.failedAttempt = FailedAttempt(text: "\0")
      let parked = TaskFailure(reason: "a", date: .seconds(0), attempt: attempted.failedAttempt)
      let changes: [(String, TaskChange)] = [
        ("failedAttempt", .insert(attempted, onDuplicate: .keep)),
        ("attempt", .park(lease, failure: parked)),
        ("name", .insert(.make(1, name: "\0"), onDuplicate: .keep)),
        ("uniqueKey", .insert(.make(1, key: "a\0b"), onDuplicate: .keep)),
        ("tags", .insert(tagged(["\0"]), onDuplicate: .keep)),
        ("metadata", .insert(described(["\0": "a"]), onDuplicate: .keep)),
        ("metadata", .insert(described(["a": "\0"]), onDuplicate: .keep)),
        ("lastError", .insert(failed("\0"), onDuplicate: .keep)),
        ("earlier failure", .insert(failed("\0", "a"), onDuplicate: .keep)),
        ("failure", .retry(lease, availableDate: .seconds(0), retryCount: 1, failure: failure)),
        ("failure", .abandon(lease, failure: failure, retains: true)),
        ("failure", .park(lease, failure: failure)),
        ("name", .unpark(name: "\0")),
        ("tags", .update(.numbered(1), TaskUpdate(tags: ["\0"]))),
        ("metadata", .update(.numbered(1), TaskUpdate(metadata: ["a": "\0"]))),
      ]
      for (word, change) in changes {
        let error = await queueError {
          try await store.apply(
            [.insert(.make(2), onDuplicate: .keep), change],
            durability: .durable
          )
        }
        #expect(error?.code == .invalidArgument, "\(change)")
        #expect(error?.message.contains(word) == true, "\(change)")
      }
      let count = try await store.count(matching: TaskFilter())
      #expect(count == 0)
    }
  }

  @Test func `payloads may contain any bytes`() async throws {
    let queue = TaskQueue(clock: clock)
    let texts = Log<String>()
    await queue.register(Note.self) { note, _ in texts.add(note.text) }
    try await queue.enqueue(Note("a\0b"))
    try await queue.runAvailable()
    #expect(texts.entries == ["a\0b"])
  }
}

/// Tests files of earlier versions, which accepted strings with NULs.
@Suite(.virtualTime) struct OldTextFormTests {
  private func withOldFile(
    _ entries: [JournalEntry],
    _ body: (JSONFileStore) async throws -> Void
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      var text = try JournalText()
      for entry in entries { try text.addBatch([entry]) }
      try Data(text.bytes).write(to: url)
      let store = JSONFileStore(at: url)
      try await body(store)
      try await store.close()
    }
  }

  private var old: TaskRecord {
    var record = TaskRecord.make(1, name: "a\0", key: "k\0")
    record.apply(TaskUpdate(tags: ["t\0"]))
    record.note(TaskFailure(reason: "e\0", date: .seconds(0)))
    return record
  }

  @Test func `a file with NULs in its strings can be opened, and its tasks are unchanged`()
    async throws
  {
    let lease = Lease(id: .numbered(2), token: 0)
    let failure = TaskFailure(reason: "f\0", date: .seconds(0))
    let entries: [JournalEntry] = [
      .addition(old, .holder),
      .change(.insert(.make(2), onDuplicate: .keep)),
      .begin(.numbered(2)),
      .change(.retry(lease, availableDate: .seconds(0), retryCount: 1, failure: failure)),
      .change(.update(.numbered(2), TaskUpdate(tags: ["u\0"]))),
      .change(.unpark(name: "a\0")),
    ]
    try await withOldFile(entries) { store in
      let tasks = try await store.tasks(matching: TaskFilter(), after: nil, limit: 9)
      #expect(tasks.map(\.name) == ["a\0", "Note"])
      #expect(tasks.map(\.uniqueKey) == ["k\0", nil])
      #expect(tasks.map(\.tags) == [["t\0"], ["u\0"]])
      #expect(tasks.map(\.lastError) == ["e\0", "f\0"])
      // The tasks can be found by their key and tag.
      let filter = TaskFilter(uniqueKeys: ["k\0"], tags: ["t\0"])
      #expect(try await store.count(matching: filter) == 1)
    }
  }

  @Test
  func `a fallback performs tasks whose names have NULs, and a parked task doesn't stop the queue`()
    async throws
  {
    let park = TaskChange.park(
      Lease(id: .numbered(2), token: 0),
      failure: TaskFailure(reason: "it can't be decoded", date: .seconds(0))
    )
    var expiring = TaskRecord.make(3, name: "c\0")
    expiring.apply(TaskUpdate(expiryDate: .seconds(1)))
    expiring.note(TaskFailure(reason: "e\0", date: .seconds(0)))
    let entries: [JournalEntry] = [
      .change(.insert(.make(1, name: "a\0"), onDuplicate: .keep)),
      .change(.insert(.make(2, name: "b\0"), onDuplicate: .keep)),
      .begin(.numbered(2)), .change(park),
      .change(.insert(expiring, onDuplicate: .keep)),
    ]
    let clock = try #require(VirtualTime.current).clock
    try await withOldFile(entries) { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      let names = Log<String>()
      await queue.registerFallback { _, context in names.add(context.name) }
      try await queue.runAvailable()
      #expect(names.entries == ["a\0"])
      #expect(try await queue.tasks(matching: TaskFilter(states: [.parked])).map(\.name) == ["b\0"])
      // The reason of an expired task includes its last error.
      let ended = try await queue.tasks(matching: .deadLetters)
      #expect(ended.map(\.id) == [.numbered(3)])
      #expect(ended.first?.lastError?.hasSuffix("e\u{FFFD}") == true)
      let restarted = try await queue.retry(.numbered(2))
      #expect(restarted)
      try await queue.runAvailable()
      #expect(names.entries == ["a\0", "b\0"])
    }
  }
}
