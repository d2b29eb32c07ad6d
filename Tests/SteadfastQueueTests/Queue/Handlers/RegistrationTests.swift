import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private enum Mail { struct Send: TaskPayload { var to: String } }
private enum Fax { struct Send: TaskPayload { var to: String } }

/// Payload types whose task names are equal or invalid.
private enum Named {
  struct First: TaskPayload { static var taskName: String { "Same" } }
  struct Second: TaskPayload { static var taskName: String { "Same" } }
  struct Renamed: TaskPayload { static var formerTaskNames: [String] { ["Same"] } }
  struct Nameless: TaskPayload { static var taskName: String { "" } }
}

/// Tests which handler performs a task, and which registrations are rejected.
@Suite(.virtualTime) struct RegistrationTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: some Persistence = InMemoryStore()) -> TaskQueue {
    TaskQueue(persistence: store, clock: clock)
  }

  @Test func `nested types with the same name have separate tasks and handlers`() async throws {
    let queue = makeQueue()
    await queue.register(Mail.Send.self) { [log] send, _ in log.add("mailed to \(send.to)") }
    await queue.register(Fax.Send.self) { [log] send, _ in log.add("faxed to \(send.to)") }
    try await queue.enqueue(Mail.Send(to: "a"))
    try await queue.enqueue(Fax.Send(to: "b"))
    try await queue.runAvailable()
    #expect(log.entries == ["mailed to a", "faxed to b"])
  }

  @Test func `nested types with the same name remain separate after a restart`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "tasks")
      let store = JSONFileStore(at: file)
      let before = makeQueue(on: store)
      try await before.enqueue(Mail.Send(to: "a"))
      try await before.enqueue(Fax.Send(to: "b"))
      try await store.close()
      let queue = makeQueue(on: JSONFileStore(at: file))
      await queue.register(Mail.Send.self) { [log] send, _ in log.add("mailed to \(send.to)") }
      await queue.register(Fax.Send.self) { [log] send, _ in log.add("faxed to \(send.to)") }
      try await queue.runAvailable()
      #expect(log.entries == ["mailed to a", "faxed to b"])
    }
  }

  @Test func `a task whose name has no handler waits until a type is registered for the name`()
    async throws
  {
    struct Send: TaskPayload {
      var to: String
      static var formerTaskNames: [String] { ["Fax.Send"] }
    }
    let queue = makeQueue()
    try await queue.enqueue(Fax.Send(to: "b"))
    await queue.register(Mail.Send.self) { _, _ in }
    let attempts = try await queue.runAvailable()
    #expect(attempts == 0)
    await queue.register(Send.self) { [log] send, _ in log.add("sent to \(send.to)") }
    try await queue.runAvailable()
    #expect(log.entries == ["sent to b"])
  }

  @Test
  func `a task with a nested type's bare name waits, and an event suggests formerTaskNames`()
    async throws
  {
    let queue = makeQueue()
    await queue.register(Mail.Send.self) { _, _ in }
    let events = queue.events
    try await queue.enqueue(name: "Send", ["to": "a"])
    let attempts = try await queue.runAvailable()
    #expect(attempts == 0)
    #expect(try await queue.count == 1)
    for await event in events {
      guard case .unhandled(_, let reason) = event else { continue }
      #expect(reason.contains("Mail.Send"))
      #expect(reason.contains("formerTaskNames"))
      break
    }
  }

  /// A registration that is rejected.
  enum Mistake: CaseIterable {
    case secondType, formerName, namelessType, emptyName, noTasks, lessThanNone

    /// The code of the registration's error, and words in the message.
    var error: (code: TaskQueueError.Code, words: [String]) {
      switch self {
      case .secondType: (.nameTaken, ["'Same'", "Named.First", "Named.Second"])
      case .formerName: (.nameTaken, ["'Same'", "Named.First", "Named.Renamed"])
      case .namelessType: (.invalidArgument, ["Named.Nameless", "is empty"])
      case .emptyName: (.invalidArgument, ["name", "is empty"])
      case .noTasks: (.invalidArgument, ["'Note'", "maxConcurrentTasks of 0"])
      case .lessThanNone: (.invalidArgument, ["'other'", "maxConcurrentTasks of -1"])
      }
    }

    func register(in queue: TaskQueue) async {
      switch self {
      case .secondType: await queue.register(Named.Second.self) { _, _ in }
      case .formerName: await queue.register(Named.Renamed.self) { _, _ in }
      case .namelessType: await queue.register(Named.Nameless.self) { _, _ in }
      case .emptyName: await queue.register(name: "") { _, _ in }
      case .noTasks: await queue.register(Note.self, maxConcurrentTasks: 0) { _, _ in }
      case .lessThanNone:
        await queue.register(name: "other", maxConcurrentTasks: -1) { _, _ in }
      }
    }
  }

  @Test(arguments: Mistake.allCases)
  func `after a rejected registration, all calls throw its error`(
    _ mistake: Mistake
  ) async throws {
    let (code, words) = mistake.error
    let queue = makeQueue()
    await queue.register(Named.First.self) { _, _ in }
    try await queue.enqueue(Named.First())
    await mistake.register(in: queue)
    let calls: [() async throws -> Void] = [
      { try await queue.run() },
      { try await queue.runAvailable() },
      { try await queue.enqueue(Named.First()) },
      { try await queue.open() },
      { _ = try await queue.count },
    ]
    for call in calls {
      let error = await #expect(throws: TaskQueueError.self) { try await call() }
      #expect(error?.code == code)
      for word in words { #expect(error?.message.contains(word) == true, "\(error as Any)") }
    }
  }

  @Test
  func `after a rejected registration, a run carries out commands, and its handlers can add tasks`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(5), on: clock)) { $0.changes.contains("retry") }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Named.First.self) { [clock] _, context in
      try await clock.sleep(for: .seconds(1))
      try await context.enqueue(name: "follow-up")
      throw Refusal()
    }
    try await withRunning(queue) {
      let task = try await queue.enqueue(Named.First())
      try await clock.sleep(for: .seconds(2))
      async let isCancelled = queue.cancel(task.id)
      await queue.register(Named.Second.self) { _, _ in }
      #expect(try await isCancelled)
      try await clock.sleep(for: .seconds(60))
      #expect(
        try await store.tasks(matching: .unfinished, after: nil, limit: 9).map(\.name) == [
          "follow-up"
        ]
      )
    }
    await #expect(throws: TaskQueueError.self) { try await queue.count }
    try await queue.destroy()
  }

  @Test func `after a rejected registration, a run continues with its handlers`() async throws {
    let queue = makeQueue()
    await queue.register(Named.First.self) { [log] _, context in
      await queue.register(Named.Second.self) { [log] _, _ in log.add("second") }
      log.add("first")
    }
    try await queue.enqueue(contentsOf: [Named.First(), Named.First()])
    let attempts = try await queue.runAvailable()
    #expect(attempts == 2)
    #expect(log.entries == ["first", "first"])
    await #expect(throws: TaskQueueError.self) { try await queue.runAvailable() }
  }

  @Test
  func `a type's handler can be replaced by another typed handler or by a handler for any JSON`()
    async throws
  {
    let queue = makeQueue()
    await queue.register(Note.self) { [log] _, _ in log.add("1") }
    await queue.register(Note.self) { [log] _, _ in log.add("2") }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    await queue.register(name: Note.taskName) { [log] _, _ in log.add("3") }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(log.entries == ["2", "3"])
  }
}
