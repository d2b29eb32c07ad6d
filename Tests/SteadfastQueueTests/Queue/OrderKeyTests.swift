import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests order keys through the public interface of a queue.
@Suite(.virtualTime) struct OrderKeyTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence,
    _ perform: @escaping @Sendable (Note, TaskContext) async throws -> Void = { _, _ in }
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        backoff: .constant(.seconds(60)),
        abandonedRetention: .none
      ),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      log.add("\(Int(clock.now.offset / .seconds(1))) \(note.text)")
      try await perform(note, context)
    }
    return queue
  }

  private let inOrder = TaskOptions(orderKey: "document 7")

  @Test(arguments: StoreKind.allCases)
  func `tasks with the same order key run one at a time, concurrently with other tasks`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, context in
        try await clock.sleep(for: .seconds(10))
        if note.text == "2", context.retryCount == 0 { throw Refusal() }
      }
      try await withRunning(queue) {
        let urgent = TaskOptions(priority: .high, orderKey: "document 7")
        var tasks = try await queue.enqueue(contentsOf: [Note("1"), Note("2")], options: inOrder)
        tasks.append(try await queue.enqueue(Note("3"), options: urgent))
        tasks.append(try await queue.enqueue(Note("other")))
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
      }
      // The second task fails at 20 s, and blocks the third task until the retry succeeds.
      #expect(Set(log.entries.prefix(2)) == ["0 1", "0 other"])
      #expect(log.entries.dropFirst(2) == ["10 2", "80 2", "90 3"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a failed task that blocks its order key becomes a dead letter, and holds back later tasks`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { note, context in
        if note.text == "1" { throw TaskAbandoned("no such document") }
      }
      let blocking = TaskOptions(orderKey: "document 7", blocksOrderOnFailure: true)
      try await withRunning(queue) {
        let first = try await queue.enqueue(Note("1"), options: blocking)
        let second = try await queue.enqueue(Note("2"), options: inOrder)
        #expect(try await first.outcome() == .abandoned(reason: "no such document"))
        try await queue.waitUntilIdle()
        #expect(try await queue.tasks(matching: .deadLetters).map(\.id) == [first.id])
        #expect(try await first.record()?.blocksOrder == true)
        try await queue.retry(first.id)
        try await queue.waitUntilIdle()
        #expect(log.entries == ["0 1", "0 1"])
        let keys = TaskFilter(states: [.abandoned], orderKeys: ["document 7"])
        #expect(try await queue.remove(matching: keys) == 1)
        #expect(try await second.outcome() == .succeeded)
      }
      #expect(log.entries == ["0 1", "0 1", "0 2"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a cancelled task unblocks the next, and a restarted task regains its position`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(
          maxConcurrentTasks: 4,
          cancelledRetention: .forever
        ),
        clock: clock
      )
      await queue.register(Note.self) { [log, clock] note, _ in
        log.add(note.text)
        try await clock.sleep(for: .seconds(10))
      }
      let notes = ["1", "2", "3", "4"].map { Note($0) }
      let tasks = try await queue.enqueue(contentsOf: notes, options: inOrder)
      try await tasks[0].cancel()
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        try await queue.retry(tasks[0].id)
        try await queue.waitUntilIdle()
      }
      #expect(log.entries == ["2", "1", "3", "4"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `removing a running, waiting or paused task unblocks the next task of its order key`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, _ in
        if note.text == "1" { try await clock.sleep(for: .seconds(100)) }
      }
      let blocking = TaskOptions(orderKey: "document 7", blocksOrderOnFailure: true)
      let notes = ["1", "2", "3", "4"].map { Note($0) }
      let tasks = try await queue.enqueue(contentsOf: notes, options: blocking)
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        // Now one task is running, one is waiting, and one is paused.
        try await queue.pause(tasks[2].id)
        #expect(try await queue.remove(tasks[1].id))
        #expect(try await queue.remove(tasks[0].id))
        #expect(try await queue.remove(matching: TaskFilter(ids: [tasks[2].id])) == 1)
        #expect(try await tasks[3].outcome() == .succeeded)
      }
      #expect(try await queue.count(matching: TaskFilter()) == 0)
      #expect(log.entries == ["0 1", "1 4"])
    }
  }

  @Test func `an empty order key is rejected`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    let error = await queueError {
      try await queue.enqueue(Note("1"), options: TaskOptions(orderKey: ""))
    }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("orderKey is empty") == true)
  }

  @Test func `each payload provides the order key of its task`() async throws {
    struct Edit: TaskPayload {
      var document: String
      var options: TaskOptions { TaskOptions(orderKey: document) }
    }
    let queue = await makeQueue(on: InMemoryStore())
    let task = try await queue.enqueue(
      Edit(document: "a"),
      options: TaskOptions(blocksOrderOnFailure: true)
    )
    let record = try #require(try await task.record())
    #expect(record.orderKey == "a" && record.blocksOrderOnFailure)
    let several = try await queue.enqueue(contentsOf: [Edit(document: "b"), Edit(document: "c")])
    let batch = try await queue.enqueue(contentsOf: [Edit(document: "d")], then: Note("end"))
    var keys: [String?] = []
    for task in several + batch.tasks { keys.append(try await task.record()?.orderKey) }
    #expect(keys == ["b", "c", "d"])
    // Without a key, there is no order to block.
    let other = try await queue.enqueue(Note("1"), options: TaskOptions(blocksOrderOnFailure: true))
    #expect(try await other.record()?.blocksOrderOnFailure == false)
  }
}
