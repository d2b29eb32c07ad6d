import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests tasks whose sealed payload can't be opened, or was sealed for another task.
@Suite(.virtualTime) struct UnopenedPayloadTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func queue(_ store: some Persistence) async -> TaskQueue {
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    return queue
  }

  @Test func `a task whose payload can't be opened is parked until the payload can be opened`()
    async throws
  {
    let seal = TestSeal(keys: [1])
    let queue = await queue(InMemoryStore().sealingPayloads(with: seal.payloadSeal))
    let first = try await queue.enqueue(Note("old key"))
    seal.setKeys(2)
    try await queue.enqueue(Note("new key"))
    try await queue.runAvailable()
    #expect(log.entries == ["new key"])
    let record = try #require(try await queue.tasks().first)
    #expect(record.state == .parked)
    #expect(record.retryCount == 0)
    #expect(
      record.lastError
        == """
        the payload of the task \(first.id) ('Note') can't be opened: the key does not fit. The \
        payload stays in the store; use a seal that can open it
        """
    )
    seal.setKeys(2, 1)
    try await queue.runAvailable()
    #expect(log.entries == ["new key", "old key"])
    #expect(try await queue.count == 0)
  }

  @Test func `a parked task runs once its handler is registered again`() async throws {
    let seal = TestSeal()
    let queue = await queue(InMemoryStore().sealingPayloads(with: seal.payloadSeal))
    let events = queue.events
    let task = try await queue.enqueue(Note("locked"))
    seal.setKeys()
    let outcome = try await withRunning(queue) {
      for await event in events { if case .unhandled = event { break } }
      seal.setKeys(0x5A)
      await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
      return try await task.outcome()
    }
    #expect(outcome == .succeeded)
    #expect(log.entries == ["locked"])
  }

  @Test func `lookups include tasks whose payloads can't be opened`() async throws {
    let seal = TestSeal(keys: [1])
    let queue = await queue(InMemoryStore().sealingPayloads(with: seal.payloadSeal))
    try await queue.enqueue(Note("a"))
    seal.setKeys(2)
    try await queue.enqueue(Note("b"))
    let records = try await queue.tasks()
    #expect(records.map(\.payload.format) == [.json, .json])
    #expect(try records[1].payload.bytes() == Array(#"{"text":"b"}"#.utf8))
    let error = #expect(throws: TaskQueueError.self) { try records[0].payload.bytes() }
    #expect(error?.code == .unopenedPayload)
    #expect(error?.underlying is TestSeal.WrongKey)
  }

  @Test func `a payload that was moved to another task can't be opened`() async throws {
    let base = InMemoryStore()
    let seal = TestSeal().payloadSeal
    try await TaskQueue(persistence: base.sealingPayloads(with: seal), clock: clock)
      .enqueue(Note("mine"))
    let record = try await base.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
    let moved = [
      TaskRecord.make(1).replacing(payload: record.payload),
      copy(of: record, name: "Other"),
      copy(of: record, version: 2),
      copy(of: record, format: .sealedBinary),
    ]
    for record in moved {
      let store = InMemoryStore()
      _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .durable)
      let found = try await store.sealingPayloads(with: seal)
        .tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
      #expect(throws: TaskQueueError.self) { try found.payload.bytes() }
    }
  }

  private func copy(
    of record: TaskRecord,
    name: String? = nil,
    version: Int = 1,
    format: StoredPayload.Format = .sealedJSON
  ) -> TaskRecord {
    TaskRecord(
      id: record.id,
      name: name ?? record.name,
      payload: StoredPayload(
        (try? record.payload.bytes()) ?? [],
        format: format,
        version: version
      ),
      createdDate: record.createdDate,
      availableDate: record.availableDate
    )
  }

  @Test func `a sealed task in a store without a seal is parked, with the reason`()
    async throws
  {
    let base = InMemoryStore()
    let store = base.sealingPayloads(with: TestSeal().payloadSeal)
    let sealing = TaskQueue(persistence: store, clock: clock)
    try await sealing.enqueue(Note("a"))
    try await sealing.enqueue(name: "Untyped", ["b": 1])
    let queue = await queue(base)
    await queue.registerFallback { [log] _, _ in log.add("untyped") }
    try await queue.runAvailable()
    let left = try await queue.tasks()
    #expect(left.map(\.state) == [.parked, .parked])
    for record in left {
      #expect(record.lastError?.contains("('\(record.name)') is sealed") == true)
      #expect(record.lastError?.contains("sealingPayloads(with:)") == true)
    }
    #expect(log.entries.isEmpty)
  }
}
