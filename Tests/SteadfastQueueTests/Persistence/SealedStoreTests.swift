import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct SealedStoreTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func queue(_ store: some Persistence) async -> TaskQueue {
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    return queue
  }

  /// Enqueues tasks in the file, and returns the file's contents.
  @discardableResult
  private func enqueue(
    _ texts: String...,
    in file: URL,
    _ seal: PayloadSeal?
  ) async throws -> String {
    let store = JSONFileStore(at: file)
    let sealed: any Persistence = seal.map { store.sealingPayloads(with: $0) } ?? store
    try await TaskQueue(persistence: sealed, clock: clock).enqueue(contentsOf: texts.map(Note.init))
    try await sealed.close()
    return try String(contentsOf: file, encoding: .utf8)
  }

  // MARK: At rest

  @Test func `a sealed payload is unreadable in the file, and can be opened after a restart`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let text = try await enqueue("a secret", in: file, TestSeal().payloadSeal)
      #expect(!text.contains("secret"))
      #expect(text.contains(#""sealed":""#))
      #expect(!text.contains(#""payload":"#))
      let store = JSONFileStore(at: file).sealingPayloads(with: TestSeal().payloadSeal)
      #expect(try await queue(store).runAvailable() == 1)
      try await store.close()
    }
    #expect(log.entries == ["a secret"])
  }

  @Test func `metadata is stored as it is, so that tasks can be found by it`() async throws {
    let base = InMemoryStore()
    let queue = await queue(base.sealingPayloads(with: TestSeal().payloadSeal))
    let metadata = ["tenant": "eins"]
    try await queue.enqueue(Note("a secret"), options: TaskOptions(metadata: metadata))
    let filter = TaskFilter(metadata: metadata)
    let stored = try await base.tasks(matching: filter, after: nil, limit: 9)
    #expect(stored.map(\.metadata) == [metadata])
    #expect(try await queue.count(matching: filter) == 1)
  }

  @Test func `the store caches no plain payload, and opens a payload for each attempt`()
    async throws
  {
    let base = InMemoryStore()
    let seal = TestSeal()
    let queue = await queue(base.sealingPayloads(with: seal.payloadSeal))
    try await queue.enqueue(Note("a secret"))
    let kept = try await base.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
    #expect(kept.payload.value(as: Note.self) == nil)
    #expect(kept.payload.format == .sealedJSON)
    #expect(seal.openCount == 0)
    try await queue.runAvailable()
    #expect(seal.openCount == 1)
    #expect(log.entries == ["a secret"])
  }

  @Test func `sealed payloads of all formats are the same after writing, reading and compaction`()
    async throws
  {
    let payloads = [
      StoredPayload([0, 10, 255], format: .binary, version: 3),
      StoredPayload(Array("{\n}".utf8), format: .json, version: 2),
      StoredPayload([], format: .binary),
    ]
    for kind in ["insert", "task"] {
      for (number, payload) in payloads.enumerated() {
        let record = TaskRecord.make(number).replacing(payload: payload)
        let base = InMemoryStore()
        let store = base.sealingPayloads(with: TestSeal().payloadSeal)
        _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .durable)
        let sealed = try await base.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
        let entry: JournalEntry =
          kind == "insert"
          ? .change(.insert(sealed, onDuplicate: .keep))
          : .task(KeptTask(record: sealed, position: 1, hasLostKey: false))
        let found = try read(entry)
        #expect(found.payload.format == sealed.payload.format)
        #expect(found.payload.version == payload.version)
        #expect(try found.payload.bytes() == sealed.payload.bytes())
        let other = InMemoryStore()
        _ = try await other.apply([.insert(found, onDuplicate: .keep)], durability: .durable)
        let opened = try await other.sealingPayloads(with: TestSeal().payloadSeal)
          .tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
        #expect(opened.payload.format == payload.format)
        #expect(try opened.payload.bytes() == payload.bytes())
      }
    }
  }

  /// Writes an entry to a journal, and returns the task that is read from the journal.
  private func read(_ entry: JournalEntry) throws -> TaskRecord {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([[JournalBody(entry)]])
    let table = try JournalReader.read(storage.bytes).table
    return try #require(table.tasks(matching: TaskFilter(), after: nil, limit: 1).first)
  }

  @Test(arguments: [
    (#""payload":{}"#, true), (#""data":"AP8=""#, true), (#""sealed":"AP8=""#, true),
    (#""sealedData":"""#, true), (#""sealed":"A!8=""#, false), (#""sealed":7"#, false),
    (#""sealedData":"AP8""#, false), (#""sealed":"","sealedData":"""#, false),
    (#""sealed":"","payload":{}"#, false), (#""tags":["none"]"#, false),
  ])
  func `a line has exactly one payload, and sealed payloads are valid base64`(
    fields: String,
    isValid: Bool
  ) throws {
    let text = """
      "k":"insert","id":"01020304-0506-0708-090a-0b0c0d0e0f10","name":"Note","priority":0,\
      "created":0,"available":0,"maxRetries":1,\(fields)}
      """
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([[JournalBody(Array(text.utf8)[...])]])
    if isValid {
      #expect(try JournalReader.read(storage.bytes).table.taskCount == 1)
    } else {
      #expect(throws: JournalProblem.self) { try JournalReader.read(storage.bytes) }
    }
  }

  @Test func `tasks with plain payloads are performed if plain payloads are accepted`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await enqueue("plain", in: file, nil)
      let text = try await enqueue("sealed", in: file, TestSeal().payloadSeal)
      #expect(text.contains("plain"))
      let store = JSONFileStore(at: file)
        .sealingPayloads(with: TestSeal().payloadSeal, acceptsPlain: true)
      try await queue(store).runAvailable()
      try await store.close()
    }
    #expect(log.entries == ["plain", "sealed"])
  }

  @Test func `a task with a plain payload is parked unless plain payloads are accepted`()
    async throws
  {
    let base = InMemoryStore()
    try await TaskQueue(persistence: base, clock: clock).enqueue(Note("plain"))
    let seal = TestSeal().payloadSeal
    let queue = await queue(base.sealingPayloads(with: seal))
    try await queue.enqueue(Note("sealed"))
    try await queue.runAvailable()
    #expect(log.entries == ["sealed"])
    let left = try await queue.tasks()
    #expect(left.map(\.state) == [.parked])
    #expect(left[0].lastError?.contains("refuses plain payloads") == true)
    let accepting = await self.queue(base.sealingPayloads(with: seal, acceptsPlain: true))
    try await accepting.runAvailable()
    #expect(log.entries == ["sealed", "plain"])
  }

  @Test(arguments: [1, 2])
  func `the payload of a task with a unique key opens if it was sealed for the task's ID`(
    number: Int
  ) async throws {
    let seal = TestSeal().payloadSeal
    let record = TaskRecord.make(1, key: "k")
    // Earlier versions sealed such payloads with this context.
    let context = PayloadSeal.Context(
      id: .numbered(number),
      name: record.name,
      format: .json,
      version: record.payload.version
    )
    let bytes = Array(try seal.seal(Data(record.payload.bytes()), context))
    let sealed = record.replacing(payload: StoredPayload(bytes, format: .sealedJSON))
    let base = InMemoryStore()
    _ = try await base.apply([.insert(sealed, onDuplicate: .keep)], durability: .durable)
    let queue = await queue(base.sealingPayloads(with: seal))
    try await queue.runAvailable()
    let left = try await queue.tasks()
    if number == 1 {
      #expect(log.entries == ["1"])
      #expect(left.isEmpty)
    } else {
      #expect(log.entries.isEmpty)
      #expect(left.map(\.state) == [.parked])
      #expect(left.first?.lastError?.contains("the key does not fit") == true)
    }
  }

  // MARK: Sealing

  @Test func `enqueue throws the error of the seal, and adds no task of the batch`()
    async throws
  {
    let seal = TestSeal(keys: [])
    let queue = await queue(InMemoryStore().sealingPayloads(with: seal.payloadSeal))
    await #expect(throws: TestSeal.NoKey.self) {
      try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    }
    #expect(try await queue.count == 0)
    seal.setKeys(1)
    try await queue.enqueue(Note("c"))
    try await queue.runAvailable()
    #expect(log.entries == ["c"])
  }

  @Test func `a task that is copied between sealed stores is sealed again`()
    async throws
  {
    let (old, new) = (TestSeal(keys: [1]), TestSeal(keys: [2]))
    let base = InMemoryStore()
    let source = base.sealingPayloads(with: old.payloadSeal)
    try await TaskQueue(persistence: source, clock: clock).enqueue(Note("a"))
    let opened = try await source.tasks(matching: TaskFilter(), after: nil, limit: 1)
    let sealed = try await base.tasks(matching: TaskFilter(), after: nil, limit: 1)
    for (records, seals) in [(opened, 1), (sealed, 1)] {
      let target = InMemoryStore()
      _ = try await target.sealingPayloads(with: new.payloadSeal)
        .apply(records.map { .insert($0, onDuplicate: .keep) }, durability: .durable)
      #expect(new.sealCount == seals)
      let kept = try await target.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
      #expect(kept.payload.format == .sealedJSON)
    }
  }

  @Test func `a sealed store forwards everything else to its base store`() async throws {
    let shared = SharedStore(StoreSharing(pollInterval: .seconds(3)))
    let seal = TestSeal().payloadSeal
    #expect(shared.process().sealingPayloads(with: seal).sharing?.pollInterval == .seconds(3))
    #expect(InMemoryStore().sealingPayloads(with: seal).appliesAtOnce)
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let base = JSONFileStore(at: file)
      let store = base.sealingPayloads(with: seal)
      #expect(!store.appliesAtOnce)
      #expect("\(store)" == file.path)
      try await store.open()
      #expect(FileManager.default.fileExists(atPath: file.path))
      try await store.close()
      await #expect(throws: JSONFileError.self) { try await base.count(matching: TaskFilter()) }
      try await JSONFileStore(at: file).sealingPayloads(with: seal).destroy()
      #expect(!FileManager.default.fileExists(atPath: file.path))
    }
  }

  @Test func `the authenticated bytes are the same in every version`() {
    let context = PayloadSeal.Context(
      id: TaskID(high: 0x0102_0304_0506_0708, low: 0x090A_0B0C_0D0E_0F10),
      name: "é",
      format: .binary,
      version: 258
    )
    #expect(
      Array(context.authenticatedData)
        == Array(1...16) + [0, 0, 0, 0, 0, 0, 1, 2] + [1] + [0xC3, 0xA9]
    )
  }
}
