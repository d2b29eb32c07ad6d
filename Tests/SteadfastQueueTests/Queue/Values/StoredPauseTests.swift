import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Mail: TaskPayload { var text: String }

/// Tests stored pauses, which persist across processes.
@Suite(.virtualTime) struct StoredPauseTests {
  let clock: VirtualClock
  let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  func makeQueue(workers: Int = 1, on store: any Persistence) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, _ in
      log.add("begins \(note.text)")
      try await clock.sleep(for: .seconds(10))
      log.add(note.text)
    }
    await queue.register(Mail.self) { [log] mail, _ in log.add(mail.text) }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `a stored pause applies to the next queue on the store, before its first claim`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = await makeQueue(on: store)
      try await first.pause(durability: .durable)
      #expect(first.isPaused)
      try await first.enqueue(Mail(text: "mail"))
      #expect(try await first.runAvailable() == 0)
      await first.shutDown()
      let second = await makeQueue(on: store)
      #expect(try await second.runAvailable() == 0)
      #expect(second.isPaused)
      let task = try await second.enqueue(Mail(text: "more"))
      try await withRunning(second) {
        try await clock.sleep(for: .seconds(1_000))
        #expect(log.entries == [])
        try await second.resume(durability: .durable)
        #expect(try await task.outcome() == .succeeded)
      }
      #expect(log.entries == ["mail", "more"])
      let third = await makeQueue(on: store)
      try await third.open()
      #expect(!third.isPaused)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue that does not run reads what is paused since when`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      let observer = await makeQueue(on: store)
      #expect(try await observer.storedPause() == StoredPause())
      let first = clock.date
      try await queue.pause(durability: .durable)
      try await clock.sleep(for: .seconds(10))
      let second = clock.date
      try await queue.pause(name: "Mail", durability: .durable)
      // What is paused stays paused since its first date.
      try await queue.pause(durability: .durable)
      #expect(!observer.isPaused)
      let pause = try await observer.storedPause()
      #expect(pause.isWhole)
      #expect(pause.date == first)
      #expect(pause.names == ["Mail"])
      #expect(pause.dates == ["Mail": second])
      #expect(observer.isPaused)
      #expect(observer.pausedNames == ["Mail"])
      try await observer.resume(durability: .durable)
      try await observer.resume(name: "Mail", durability: .durable)
      #expect(try await queue.storedPause() == StoredPause())
      #expect(!queue.isPaused)
    }
  }

  @Test func `a pause of an earlier version has no dates until it is changed`() async throws {
    let store = InMemoryStore()
    try await store.open()
    let value = Array(#"{"names":["Mail","Upload"],"queue":true}"#.utf8)
    let change = TaskChange.setValue(named: "steadfast.pause", from: nil, to: value)
    _ = try await store.apply([change], durability: .durable)
    let queue = await makeQueue(on: store)
    #expect(try await queue.storedPause().bytes == value)
    try await queue.pause(name: "Album", durability: .durable)
    let pause = try await queue.storedPause()
    #expect(pause.isWhole && pause.date == nil)
    #expect(pause.names == ["Album", "Mail", "Upload"])
    #expect(pause.dates == ["Album": clock.date])
  }

  @Test(arguments: [Durability.durable, .relaxed])
  func `stored pauses of names persist in a file`(durability: Durability) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let first = await makeQueue(on: store)
      for name in ["Note", "Other \"é\" / \0"] {
        try await first.pause(name: name, durability: durability)
      }
      try await first.pause(durability: durability)
      try await first.resume(durability: durability)
      try await store.close()
      let next = JSONFileStore(at: file)
      let second = await makeQueue(on: next)
      #expect(second.pausedNames == [])
      try await second.open()
      #expect(second.pausedNames == ["Note", "Other \"é\" / \0"])
      #expect(!second.isPaused)
      try await second.enqueue(Note("note"))
      try await second.enqueue(Mail(text: "mail"))
      #expect(try await second.runAvailable() == 1)
      try await second.resume(name: "Note", durability: durability)
      #expect(second.pausedNames == ["Other \"é\" / \0"])
      #expect(try await second.runAvailable() == 1)
      #expect(log.entries == ["mail", "begins note", "note"])
      try await second.resume(name: "Other \"é\" / \0", durability: durability)
      #expect(try await next.value(named: "steadfast.pause") == nil)
      try await next.close()
    }
  }

  @Test func `a pause in memory and a stored pause must be resumed separately`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    try await queue.enqueue(Mail(text: "mail"))
    await queue.pause()
    try await queue.pause(durability: .durable)
    await queue.resume()
    #expect(queue.isPaused)
    #expect(try await queue.runAvailable() == 0)
    await queue.pause()
    try await queue.resume(durability: .durable)
    #expect(queue.isPaused)
    #expect(try await queue.runAvailable() == 0)
    await queue.resume()
    #expect(!queue.isPaused)
    #expect(try await queue.runAvailable() == 1)
  }

  @Test func `a name paused in memory and in the store must be resumed in both`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    try await queue.enqueue(Mail(text: "mail"))
    await queue.pause(name: "Mail")
    try await queue.pause(name: "Mail", durability: .durable)
    await queue.resume(name: "Mail")
    #expect(queue.pausedNames == ["Mail"])
    #expect(try await queue.runAvailable() == 0)
    await queue.pause(name: "Mail")
    try await queue.resume(name: "Mail", durability: .durable)
    #expect(queue.pausedNames == ["Mail"])
    #expect(try await queue.runAvailable() == 0)
    await queue.resume(name: "Mail")
    #expect(queue.pausedNames == [])
    #expect(try await queue.runAvailable() == 1)
  }

  @Test func `attempts under way continue, and no new attempt starts after the pause returns`()
    async throws
  {
    let store = FaultInjectingStore()
    // A claim takes a second, and hands out more tasks than can start at once.
    store.inject(.delay(.seconds(1), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    let queue = await makeQueue(workers: 2, on: store)
    try await queue.enqueue(contentsOf: (0..<9).map { Note("\($0)") })
    try await withRunning(queue) {
      for step in 0..<12 {
        try await clock.sleep(for: .milliseconds(300 + 170 * step))
        let isName = step.isMultiple(of: 2)
        if isName {
          try await queue.pause(name: "Note", durability: .relaxed)
        } else {
          try await queue.pause(durability: .relaxed)
        }
        let begun = log.entries.count { $0.hasPrefix("begins") }
        try await clock.sleep(for: .seconds(30))
        #expect(log.entries.count { $0.hasPrefix("begins") } == begun)
        if isName {
          try await queue.resume(name: "Note", durability: .relaxed)
        } else {
          try await queue.resume(durability: .relaxed)
        }
      }
      try await clock.sleep(for: .seconds(200))
    }
    #expect(log.entries.count == 18)
  }

  // MARK: Several queues

  @Test(arguments: [false, true])
  func `a queue in another process detects the pause at its next poll`(givesHints: Bool)
    async throws
  {
    let store = SharedStore(StoreSharing(pollInterval: .seconds(5)), givesHints: givesHints)
    let a = await makeQueue(on: store.process())
    let b = await makeQueue(workers: 2, on: store.process())
    let delay = Duration.seconds(givesHints ? 0.1 : 5)
    try await withRunning(b) {
      try await a.enqueue(Note("under way"))
      try await clock.sleep(for: .seconds(6))
      #expect(log.entries == ["begins under way"])
      try await a.pause(durability: .durable)
      try await a.pause(name: "Other", durability: .durable)
      try await clock.sleep(for: delay)
      #expect(b.isPaused && b.pausedNames == ["Other"])
      try await a.enqueue(Mail(text: "mail"))
      try await clock.sleep(for: .seconds(60))
      #expect(log.entries == ["begins under way", "under way"])
      try await a.resume(durability: .durable)
      try await a.pause(name: "Mail", durability: .durable)
      try await clock.sleep(for: .seconds(60))
      #expect(!b.isPaused && b.pausedNames == ["Mail", "Other"])
      #expect(log.entries.count == 2)
      try await a.resume(name: "Mail", durability: .durable)
      try await clock.sleep(for: delay)
      #expect(log.entries.last == "mail")
    }
  }

  @Test func `a queue that runs again detects pauses that changed between its runs`() async throws {
    let store = SharedStore(StoreSharing())
    let (a, b) = (await makeQueue(on: store.process()), await makeQueue(on: store.process()))
    try await b.enqueue(Mail(text: "mail"))
    try await a.pause(name: "Mail", durability: .durable)
    #expect(b.pausedNames == [])
    #expect(try await b.runAvailable() == 0)
    #expect(b.pausedNames == ["Mail"])
    try await a.resume(name: "Mail", durability: .durable)
    #expect(try await b.runAvailable() == 1)
  }

  @Test func `no pause is lost among concurrent changes in several processes`() async throws {
    let store = SharedStore(StoreSharing())
    let queues = (0..<4).map { _ in
      TaskQueue(persistence: FaultInjectingStore(store.process()), clock: clock)
    }
    for queue in queues {
      (queue.core.store as? FaultInjectingStore)?
        .inject(.delay(.milliseconds(1), on: clock), .afterEffect, times: nil) { _ in true }
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for (index, queue) in queues.enumerated() {
        for number in 0..<8 {
          group.addTask {
            try await queue.pause(name: "\(index) \(number)", durability: .durable)
            if number == 0 { try await queue.pause(durability: .durable) }
            guard number < 4 else { return }
            try await queue.resume(name: "\(index) \(number)", durability: .durable)
          }
        }
      }
      try await group.waitForAll()
    }
    let last = TaskQueue(persistence: store.process(), clock: clock)
    try await last.open()
    #expect(last.pausedNames == Set((0..<4).flatMap { i in (4..<8).map { "\(i) \($0)" } }))
    #expect(last.isPaused)
  }

  @Test func `concurrent first calls of a queue read the pause only once`() async throws {
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(1), on: clock), times: nil) { $0.kind == .value }
    let queue = await makeQueue(on: store)
    try await withThrowingTaskGroup { group in
      for number in 0..<20 { group.addTask { _ = try await queue.enqueue(Note("\(number)")) } }
      try await group.waitForAll()
    }
    #expect(store.calls.count { $0.kind == .value } == 1)
    #expect(clock.now.offset == .seconds(1))
  }

  @Test func `a poll that read the store before a pause doesn't undo the pause`() async throws {
    let store = FaultInjectingStore(SharedStore(StoreSharing()).process())
    let queue = await makeQueue(on: store)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      // The next poll reads the store before the pause is stored, but returns afterwards.
      store.inject(.delay(.seconds(60), on: clock), .afterEffect) { $0.kind == .value }
      try await clock.sleep(for: .seconds(5))
      try await queue.pause(durability: .durable)
      #expect(clock.now.offset > .seconds(60))
      try await queue.enqueue(Mail(text: "mail"))
      try await clock.sleep(for: .seconds(1))
      #expect(queue.isPaused)
      #expect(log.entries == [])
    }
  }
}
