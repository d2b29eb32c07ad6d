import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that a queue's name decides which of a store's tasks are its own.
@Suite(.virtualTime) struct QueueNameTests {
  private let clock: VirtualClock
  private let log = Log<String>()
  private let warnings = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(_ name: String, on store: some Persistence) async -> TaskQueue {
    let queue = TaskQueue(
      name: name,
      persistence: store,
      configuration: TaskQueueConfiguration(notice: { [warnings] in warnings.add($0) }),
      clock: clock
    )
    await queue.register(Note.self) { [log] note, _ in log.add("\(name) \(note.text)") }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue performs, finds and prunes only the tasks of its name`(kind: StoreKind) async throws
  {
    try await kind.withStore { store in
      let names = ["default", "mail", "mails"]
      var queues: [TaskQueue] = []
      for name in names { queues.append(await makeQueue(name, on: store)) }
      for (queue, name) in zip(queues, names) {
        // Unique keys apply within one queue.
        let task = try await queue.enqueue(Note(name), uniqueKey: "key")
        #expect(try await task.record()?.queue == (name == "default" ? "" : name))
        #expect(try await queue.enqueue(Note(name), uniqueKey: "key").id == task.id)
      }
      for (queue, name) in zip(queues, names) {
        #expect(try await queue.count(matching: .unfinished) == 1)
        #expect(try await queue.tasks().map(\.queue) == [name == "default" ? "" : name])
        #expect(try await queue.statistics.counts == [.waiting: 1])
      }
      #expect(try await queues[1].tasks(matching: TaskFilter(queue: nil)).count == 3)
      #expect(try await queues[1].runAvailable() == 1)
      #expect(log.entries == ["mail mail"])
      #expect(try await queues[1].count(matching: .unfinished) == 0)
      #expect(try await queues[2].count(matching: .unfinished) == 1)
      try await queues[2].cancelAll()
      #expect(try await queues[0].count(matching: .unfinished) == 1)
      #expect(warnings.entries == [])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `pauses and schedules belong to one name`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let mail = await makeQueue("mail", on: store)
      let mails = await makeQueue("mails", on: store)
      let unnamed = await makeQueue("default", on: store)
      try await mail.pause(durability: .durable)
      try await mail.schedule("daily", .every(.seconds(86_400)), Note("daily"))
      #expect(try await mails.schedules().isEmpty)
      #expect(try await unnamed.schedules().isEmpty)
      #expect(try await mail.schedules().count == 1)
      try await mail.enqueue(Note("a"))
      try await mails.enqueue(Note("b"))
      #expect(try await mail.runAvailable() == 0)
      #expect(try await mails.runAvailable() == 1)
      #expect(log.entries == ["mails b"])
    }
  }

  @Test func `queues of two processes with different names ignore each other's tasks`() async throws
  {
    let store = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let mail = await makeQueue("mail", on: store.process())
    let mails = await makeQueue("mails", on: store.process())
    try await withRunning(mail) {
      try await withRunning(mails) {
        let first = try await mail.enqueue(Note("1"))
        let second = try await mails.enqueue(Note("2"))
        #expect(try await first.outcome() == .succeeded)
        #expect(try await second.outcome() == .succeeded)
      }
    }
    #expect(log.entries.sorted() == ["mail 1", "mails 2"])
  }

  @Test(arguments: ["default", "mails"])
  func `a queue has the same tasks alone and in a group`(name: String) async throws {
    let store = InMemoryStore()
    let alone = await makeQueue(name, on: store)
    try await alone.enqueue(Note("1"))
    try await alone.pause(durability: .durable)
    let group = TaskQueueGroup(persistence: store, clock: clock) { [log] queue in
      await queue.register(Note.self) { note, _ in log.add("group \(note.text)") }
    }
    let member = try await group.addQueue(name)
    #expect(try await group.runAvailable() == 0)
    try await member.resume(durability: .durable)
    #expect(try await group.runAvailable() == 1)
    try await group.enqueue(Note("2"), on: name)
    #expect(try await alone.count(matching: .unfinished) == 1)
    let later = await makeQueue(name, on: store)
    #expect(try await later.runAvailable() == 1)
    #expect(log.entries == ["group 1", "\(name) 2"])
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue whose store has only tasks of another name says so once`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let before = await makeQueue("mails", on: store)
      try await before.enqueue(Note("1"))
      let renamed = await makeQueue("letters", on: store)
      #expect(try await renamed.runAvailable() == 0)
      #expect(try await renamed.runAvailable() == 0)
      #expect(warnings.entries.count == 1)
      #expect(
        warnings.entries.first?.hasPrefix("the queue 'letters' has no tasks in ") == true
          && warnings.entries.first?.hasSuffix("only a queue with the name 'mails' performs them")
            == true
      )
      let unnamed = await makeQueue("default", on: store)
      #expect(try await unnamed.runAvailable() == 0)
      #expect(warnings.entries.count == 2)
      // The queue has a task now, so its name is right.
      try await unnamed.enqueue(Note("2"))
      let next = await makeQueue("default", on: store)
      #expect(try await next.runAvailable() == 1)
      #expect(warnings.entries.count == 2)
      #expect(try await before.runAvailable() == 1)
    }
  }

  @Test func `the queues of a group don't warn about each other's tasks`() async throws {
    let group = TaskQueueGroup(
      configuration: TaskQueueConfiguration(notice: { [warnings] in warnings.add($0) }),
      clock: clock
    ) { await $0.register(Note.self) { _, _ in } }
    try await group.addQueue("a")
    try await group.addQueue("b")
    try await group.enqueue(Note("1"), on: "b")
    #expect(try await group.runAvailable() == 1)
    #expect(warnings.entries == [])
  }

  @Test(arguments: ["a\u{1}b", String(repeating: "x", count: 256)])
  func `a name that can't be stored is refused when the queue opens`(name: String) async throws {
    let error = await queueError { try await TaskQueue(name: name).open() }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("of a queue") == true)
  }
}
