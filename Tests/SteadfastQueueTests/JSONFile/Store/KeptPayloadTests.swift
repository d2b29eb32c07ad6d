import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests payloads that change, or can no longer be encoded, after they were stored.
@Suite struct KeptPayloadTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore() -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      compactionPolicy: CompactionPolicy(minimumSize: 0, spareSize: 0),
      thread: { executor }
    ) { (nil, storage) }
  }

  private func insertion(_ payload: some TaskPayload) -> TaskChange {
    .insert(
      TaskRecord(
        id: .numbered(1),
        name: "Note",
        payload: StoredPayload(payload),
        createdDate: .seconds(0),
        availableDate: .seconds(0)
      ),
      onDuplicate: .keep
    )
  }

  /// Stores a payload, and has the file compacted after the body.
  private func compact(
    _ payload: some TaskPayload,
    after body: @escaping @Sendable () -> Void = {}
  ) async throws -> JSONFileReport {
    let core = makeCore()
    let insertion = insertion(payload)
    let report = try await executor.run {
      try await core.open()
      _ = try await core.apply([insertion], .durable)
      body()
      for number in 2...40 {
        _ = try await core.apply([.insert(.make(number), onDuplicate: .keep)], .relaxed)
        _ = try await core.apply(
          [.cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: false)],
          .durable
        )
      }
      return try await core.verify()
    }
    try await executor.run { try await core.close() }
    #expect(try JournalReader.read(storage.bytes).generation > 1)
    return report
  }

  private func payloadInFile() throws -> String? {
    let record = try JournalReader.read(storage.bytes).table.record(of: .numbered(1))
    return try record.map { String(decoding: try $0.payload.bytes(), as: UTF8.self) }
  }

  @Test func `an object that changes after it was stored is compacted as it was stored`()
    async throws
  {
    let object = ChangingObject("as stored")
    let report = try await compact(object) { object.text.withLock { $0 = "changed later" } }
    #expect(try payloadInFile() == #"{"text":"as stored"}"#)
    #expect(report.problems == [])
  }

  @Test func `a payload is encoded only once, so a compaction can't fail to encode it again`()
    async throws
  {
    let payload = EncodedOnce()
    _ = try await compact(payload)
    #expect(try payloadInFile() == #"{"count":1}"#)
    #expect(payload.count.value == 1)
  }

  @Test func `a handler gets an object in the state in which it was stored`() async throws {
    let object = ChangingObject("as stored")
    let log = Log<String>()
    try await withTemporaryFolder { folder in
      let queue = TaskQueue(persistence: .jsonFile(at: folder.appending(path: "queue.jsonl")))
      await queue.register(ChangingObject.self) { object, _ in
        log.add(object.text.withLock { $0 })
      }
      try await queue.enqueue(object)
      object.text.withLock { $0 = "changed later" }
      try await queue.runAvailable()
    }
    #expect(log.entries == ["as stored"])
  }

  @Test func `a handler gets the enqueued value itself, not a decoded copy`() async throws {
    let log = Log<String>()
    try await withTemporaryFolder { folder in
      let queue = TaskQueue(persistence: .jsonFile(at: folder.appending(path: "queue.jsonl")))
      await queue.register(Forgetful.self) { payload, _ in log.add(payload.text) }
      try await queue.enqueue(Forgetful(text: "remembered"))
      try await queue.runAvailable()
    }
    #expect(log.entries == ["remembered"])
  }

  @Test func `the error for a payload that can't be encoded hides its contents`() async throws {
    let core = makeCore()
    let insertion = insertion(Secretive(values: ["my secret": .nan]))
    let error = try await executor.run {
      try await core.open()
      return await #expect(throws: EncodingError.self) {
        try await core.apply([insertion], .durable)
      }
    }
    #expect(error != nil)
    #expect(error.map { !"\($0)".contains("secret") && !"\($0)".contains("Secretive(") } == true)
  }
}

private final class ChangingObject: TaskPayload {
  let text: Mutex<String>

  init(_ text: String) { self.text = Mutex(text) }

  convenience init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Keys.self)
    self.init(try container.decode(String.self, forKey: .text))
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(text.withLock { $0 }, forKey: .text)
  }

  private enum Keys: CodingKey { case text }
}

/// Throws when it is encoded a second time.
private struct EncodedOnce: TaskPayload {
  var count = Counter()

  init() {}
  init(from decoder: any Decoder) throws {}

  func encode(to encoder: any Encoder) throws {
    guard count.add(1) == 1 else { throw Refusal("encoded twice") }
    var container = encoder.container(keyedBy: Keys.self)
    try container.encode(count.value, forKey: .count)
  }

  private enum Keys: CodingKey { case count }
}

/// Loses its text when it is encoded and decoded.
private struct Forgetful: TaskPayload {
  var text: String

  init(text: String) { self.text = text }
  init(from decoder: any Decoder) throws { text = "" }

  func encode(to encoder: any Encoder) throws { _ = encoder.container(keyedBy: Keys.self) }

  private enum Keys: CodingKey { case text }
}

private struct Secretive: TaskPayload {
  var values: [String: Double]
}
