import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private struct Letter: TaskPayload, Equatable {
  var text: String

  static var schemaVersion: Int { 2 }
  static var formerTaskNames: [String] { ["OldLetter"] }

  static func decode(from json: Data, version: Int) throws -> Letter {
    guard version < 2 else { return try JSONDecoder().decode(Self.self, from: json) }
    struct First: Decodable { var body: String }
    return Letter(text: try JSONDecoder().decode(First.self, from: json).body)
  }
}

/// Tests decoding the payload of a record.
@Suite struct RecordPayloadTests {
  private func record(_ json: String, version: Int = 2, name: String = "Letter") -> TaskRecord {
    TaskRecord(
      id: .numbered(1),
      name: name,
      payload: StoredPayload(Array(json.utf8), format: .json, version: version),
      createdDate: Date(timeIntervalSince1970: 0),
      availableDate: Date(timeIntervalSince1970: 0)
    )
  }

  @Test func `the payload of a dead letter can be decoded as its type`() async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "tasks"))
      let queue = TaskQueue(persistence: store, clock: VirtualClock())
      await queue.register(Letter.self) { _, _ in throw TaskAbandoned("no such place") }
      try await queue.enqueue(Letter(text: "hello"))
      try await queue.runAvailable()
      let letter = try #require(try await queue.tasks(matching: .deadLetters).first)
      #expect(try letter.payload(as: Letter.self) == Letter(text: "hello"))
      try await store.close()
      let later = TaskQueue(persistence: JSONFileStore(at: folder.appending(path: "tasks")))
      let found = try #require(try await later.tasks(matching: .deadLetters).first)
      #expect(try found.payload(as: Letter.self) == Letter(text: "hello"))
    }
  }

  @Test func `a payload with an earlier version and a former name can be decoded`() throws {
    let old = record(#"{"body":"hello"}"#, version: 1, name: "OldLetter")
    #expect(try old.payload(as: Letter.self) == Letter(text: "hello"))
  }

  @Test(arguments: [
    (#"{"words":"secret"}"#, 2, "Letter", "'text'"),
    (#"{"text":"secret"}"#, 3, "Letter", "version 3"),
    (#"{"text":"secret"}"#, 2, "Postcard", "'Postcard'"),
  ])
  func `decoding another type's payload throws an error that does not contain the payload`(
    _ json: String,
    _ version: Int,
    _ name: String,
    _ word: String
  ) throws {
    let record = record(json, version: version, name: name)
    let error = #expect(throws: TaskQueueError.self) { try record.payload(as: Letter.self) }
    #expect(error?.code == .undecodablePayload)
    #expect(error?.message.contains(word) == true)
    #expect(error?.message.contains("secret") == false)
  }
}
