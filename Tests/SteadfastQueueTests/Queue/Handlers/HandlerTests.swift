import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A payload whose properties have changed.
private struct Comment: TaskPayload {
  var text: String
  static var schemaVersion: Int { 2 }
  static var formerTaskNames: [String] { ["OldComment"] }

  static func decode(from json: Data, version: Int) throws -> Comment {
    guard version < 2 else { return try JSONDecoder().decode(Self.self, from: json) }
    struct First: Decodable { var body: String }
    return Comment(text: try JSONDecoder().decode(First.self, from: json).body)
  }
}

@Suite(.virtualTime) struct HandlerTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    on store: some Persistence = InMemoryStore()
  ) -> TaskQueue { TaskQueue(persistence: store, configuration: configuration, clock: clock) }

  // MARK: Payloads

  private func makeRecord(json: String, version: Int, name: String = "Comment") -> TaskRecord {
    TaskRecord(
      id: .numbered(version),
      name: name,
      payload: StoredPayload(Array(json.utf8), format: .json, version: version),
      createdDate: clock.date,
      availableDate: clock.date
    )
  }

  @Test func `a payload of an earlier version is migrated, and one of a later version waits`()
    async throws
  {
    let store = InMemoryStore()
    _ = try await store.apply(
      [
        .insert(
          makeRecord(json: #"{"body":"first"}"#, version: 1, name: "OldComment"),
          onDuplicate: .keep
        ),
        .insert(makeRecord(json: #"{"text":"second"}"#, version: 2), onDuplicate: .keep),
        .insert(makeRecord(json: #"{"subject":"third"}"#, version: 3), onDuplicate: .keep),
      ],
      durability: .durable
    )
    let queue = makeQueue(on: store)
    await queue.register(Comment.self) { [log] comment, _ in log.add(comment.text) }
    try await queue.runAvailable()
    #expect(log.entries == ["first", "second"])
    let left = try await queue.tasks()
    #expect(left.map(\.state) == [.waiting])
    #expect(left[0].lastError == nil)
  }

  @Test(arguments: [false, true])
  func `a handler registered while a task is being parked performs the task`(
    atOnce: Bool
  ) async throws {
    let store = FaultInjectingStore(appliesAtOnce: atOnce)
    store.inject(.hang) { $0.changes.contains("park") }
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { _, _ in Issue.record("the payload isn't a note") }
    let task = try await queue.enqueue(name: "Note", 7)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      await queue.register(name: "Note") { [log] payload, _ in log.add("\(payload)") }
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(log.entries == ["integer(7)"])
  }

  @Test func `the schema version is stored in the file, and read back`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let first = JSONFileStore(at: url)
      try await makeQueue(on: first).enqueue(
        Comment(text: "kept"),
        options: TaskOptions(
          expiryDate: clock.date + 60,
          timeLimit: .milliseconds(1_500),
          tags: ["a \"quoted\" tag", "b"]
        )
      )
      try await first.close()
      let second = JSONFileStore(at: url)
      let record = try #require(
        try await second.tasks(matching: TaskFilter(), after: nil, limit: 1).first
      )
      #expect(record.payload.version == 2)
      #expect(record.timeLimit == .milliseconds(1_500))
      #expect(record.expiryDate == clock.date + 60)
      #expect(record.tags == ["a \"quoted\" tag", "b"])
      try await second.close()
    }
  }

  @Test func `a task without a payload type has a name and any JSON`() async throws {
    let queue = makeQueue()
    await queue.register(name: "PostThisVitalThing") { [log] userInfo, context in
      log.add("\(context.name): \(userInfo["wow"]?.string ?? "?"), \(userInfo["n"]?.int ?? 0)")
    }
    let payload: JSONValue = ["wow": "so important", "n": 3, "list": [1.5, nil, true]]
    try await queue.enqueue(name: "PostThisVitalThing", payload)
    try await queue.runAvailable()
    #expect(log.entries == ["PostThisVitalThing: so important, 3"])
  }

  @Test func `JSON of any shape survives a restart of the process`() async throws {
    let value: JSONValue = [
      "null": nil, "yes": true, "int": -7, "number": 0.5, "text": "é\n\"",
      "list": [[], [:], [1, [2, ["deep": nil]]]],
    ]
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let first = JSONFileStore(at: url)
      try await makeQueue(on: first).enqueue(name: "Any", value)
      try await first.close()
      let second = JSONFileStore(at: url)
      let queue = makeQueue(on: second)
      await queue.register(name: "Any") { [log] found, _ in log.add("\(found == value)") }
      try await queue.runAvailable()
      try await second.close()
    }
    #expect(log.entries == ["true"])
  }

  @Test func `JSON that is nested too deeply is rejected without a crash`() async throws {
    var value = JSONValue.null
    for _ in 0..<500 { value = .array([value]) }
    let deep = value
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "queue"))
      let queue = makeQueue(on: store)
      await #expect(throws: EncodingError.self) { try await queue.enqueue(name: "Deep", deep) }
      #expect(try await queue.count == 0)
      try await store.close()
    }
  }

  @Test func `a fallback handler performs tasks whose name has no other handler`() async throws {
    let queue = makeQueue()
    await queue.register(Note.self) { [log] note, _ in log.add("note \(note.text)") }
    try await queue.enqueue(name: "Unknown", "x")
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    await queue.registerFallback { [log] json, context in
      log.add("\(context.name) \(json.string ?? "?")")
    }
    try await queue.runAvailable()
    #expect(log.entries == ["note a", "Unknown x"])
  }

  // MARK: Values

  @Test func `a caller gets the value that the handler of its task returned`() async throws {
    let queue = makeQueue()
    await queue.register(Note.self) { note, _ in note.text.count }
    let task = try await queue.enqueue(Note("four"))
    try await queue.runAvailable()
    #expect(try await task.value() == 4)
    let error = await #expect(throws: TaskQueueError.self) { try await task.value(as: String.self) }
    #expect(error?.code == .noValue)
    #expect(
      error?.message
        == "the task \(task.id) has succeeded, but not with a value of the type String: it is of the "
        + "type Int"
    )
  }

  @Test func `an abandoned task has no value`() async throws {
    let queue = makeQueue()
    await queue.register(Note.self) { _, _ -> Int in throw TaskAbandoned("no") }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let error = await #expect(throws: TaskQueueError.self) { try await task.value(as: Int.self) }
    #expect(error?.message.hasSuffix("was abandoned: no") == true)
  }

  // MARK: Isolation

  @MainActor private final class Screen {
    var lines: [String] = []
  }

  @Test func `a handler on the main actor accesses its state`() async throws {
    let queue = makeQueue()
    let screen = Screen()
    await queue.register(Note.self) { @MainActor note, _ in screen.lines.append(note.text) }
    try await queue.enqueue(contentsOf: ["a", "b"].map(Note.init))
    try await queue.runAvailable()
    let lines = await screen.lines
    #expect(lines == ["a", "b"])
  }
}
