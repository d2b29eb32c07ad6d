import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests strings that Swift considers equal although their bytes differ.
@Suite(.virtualTime) struct ExactTextTests {
  private let clock: VirtualClock
  /// A letter as one Unicode scalar.
  private let one = "\u{e9}"
  /// The same letter as two scalars.
  private let two = "e\u{301}"

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test(arguments: StoreKind.allCases)
  func `unique keys with different bytes are different, even within one call`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      let keys = [one, two, one]
      let tasks = try await queue.enqueue(contentsOf: keys.map(Note.init), uniqueKey: \.text)
      #expect(tasks.map(\.isNew) == [true, true, false])
      #expect(tasks[0].id == tasks[2].id)
      let again = try await queue.enqueue(Note(two), uniqueKey: two)
      #expect(again.id == tasks[1].id)
      for (key, task) in zip(keys, tasks) {
        let found = try await queue.tasks(matching: TaskFilter(uniqueKeys: [key]))
        #expect(found.map(\.id) == [task.id])
        #expect(found.first.map { Array(($0.uniqueKey ?? "").utf8) } == Array(key.utf8))
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a handler gets only tasks whose names have the same bytes`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      let performed = Log<String>()
      await queue.register(name: one) { _, context in
        performed.add("handler \(context.name.utf8.count)")
      }
      try await queue.enqueue(name: one)
      try await queue.enqueue(name: two)
      try await queue.runAvailable()
      #expect(performed.entries == ["handler 2"])
      await queue.registerFallback { _, context in
        performed.add("fallback \(context.name.utf8.count)")
      }
      try await queue.runAvailable()
      #expect(performed.entries == ["handler 2", "fallback 3"])
    }
  }

  @Test func `a second handler for a name that Swift considers equal is rejected`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(name: one) { _, _ in }
    await queue.register(name: one) { _, _ in }
    try await queue.open()
    await queue.register(name: two) { _, _ in }
    let error = await queueError { try await queue.open() }
    #expect(error?.code == .nameTaken)
    #expect(error?.message.contains("bytes") == true)
    let other = TaskQueue(clock: clock)
    await other.register(Renamed.self) { _, _ in }
    #expect(await queueError { try await other.open() }?.code == .nameTaken)
  }

  @Test func `parked tasks are unparked for the handler and for the fallback`() async throws {
    let store = InMemoryStore()
    for (number, name) in [one, two].enumerated() {
      _ = try await store.apply(
        [.insert(.make(number, name: name), onDuplicate: .keep)],
        durability: .durable
      )
      let request = ClaimRequest(limit: 1, names: [name: 1], now: .seconds(0))
      let lease = try #require(try await store.claim(request).tasks.first).lease
      let failure = TaskFailure(reason: "", date: .seconds(0))
      _ = try await store.apply([.park(lease, failure: failure)], durability: .durable)
    }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(name: one) { _, _ in }
    await queue.registerFallback { _, _ in }
    let count = try await queue.runAvailable()
    #expect(count == 2)
  }

  @Test func `a file preserves the bytes of names, keys and tags`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      for _ in 1...2 {
        let store = JSONFileStore(at: url)
        let queue = TaskQueue(persistence: store, clock: clock)
        for text in [one, two] {
          try await queue.enqueue(
            name: text,
            uniqueKey: text,
            options: TaskOptions(tags: [text, "plain"])
          )
        }
        for text in [one, two] {
          for filter in [
            TaskFilter(names: [text]), TaskFilter(uniqueKeys: [text]), TaskFilter(tags: [text]),
          ] {
            let names = try await queue.tasks(matching: filter).map { Array($0.name.utf8) }
            #expect(names == [Array(text.utf8)])
          }
        }
        try await store.close()
      }
    }
  }
}

private struct Renamed: TaskPayload {
  static let taskName = "\u{e9}"
  static let formerTaskNames = ["e\u{301}"]
}
