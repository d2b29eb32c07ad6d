import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests batches and their followers through the public interface of a queue.
@Suite(.virtualTime) struct FollowerTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence,
    _ perform: @escaping @Sendable (Note, TaskContext) async throws -> Void = { _, _ in }
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 3, abandonedRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { [log] note, context in
      log.add(note.text)
      try await perform(note, context)
    }
    return queue
  }

  private let photos = (1...9).map { Note("photo \($0)") }

  @Test(arguments: StoreKind.allCases)
  func `a follower runs after its whole batch has succeeded, and the progress is reported`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, _ in
        if note.text != "notify" { try await clock.sleep(for: .seconds(1)) }
      }
      let events = queue.events
      let batch = try await queue.enqueue(contentsOf: photos, then: Note("notify"))
      #expect(batch.tasks.count == 9)
      #expect(try await batch.progress() == BatchProgress(total: 9))
      try await withRunning(queue) {
        let outcome = try await batch.follower.outcome()
        #expect(outcome == .succeeded)
      }
      #expect(log.entries.last == "notify")
      #expect(log.entries.count == 10)
      await queue.shutDown()
      var reported: [BatchProgress] = []
      for await case .batchProgressed(let follower, let progress) in events {
        #expect(follower == batch.follower.id)
        reported.append(progress)
      }
      #expect(reported.map(\.succeeded).sorted() == Array(1...9))
      #expect(reported.allSatisfy { $0.total == 9 && $0.failed == 0 })
    }
  }

  @Test func `the follower of an empty batch is available at once`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    let batch = try await queue.enqueue(contentsOf: [Note](), then: Note("notify"))
    #expect(batch.tasks.isEmpty)
    #expect(try await queue.runAvailable() == 1)
    #expect(try await batch.follower.outcome() == .succeeded)
  }

  @Test(arguments: StoreKind.allCases)
  func `one failure cancels the follower, while the rest of the batch continues`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let fixed = Log<Bool>()
      let queue = await makeQueue(on: store) { note, _ in
        if note.text == "photo 4", fixed.entries.isEmpty { throw TaskAbandoned("no such photo") }
      }
      let batch = try await queue.enqueue(contentsOf: photos, then: Note("notify"))
      _ = try await queue.runAvailable()
      #expect(try await batch.follower.outcome() == .cancelled)
      #expect(log.entries.count == 9)
      #expect(try await batch.progress() == BatchProgress(total: 9, succeeded: 8, failed: 1))
      fixed.add(true)
      #expect(try await queue.retry(matching: .deadLetters) > 0)
      #expect(try await batch.progress() == BatchProgress(total: 9, succeeded: 8))
      #expect(try await queue.runAvailable() == 2)
      #expect(try await batch.follower.outcome() == .succeeded)
      #expect(log.entries.suffix(2) == ["photo 4", "notify"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a follower also waits for tasks that handlers of its batch add to the batch`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { note, context in
        guard note.text == "folder" else { return }
        try await context.enqueueInBatch(contentsOf: [Note("a"), Note("b")])
        try await context.enqueueInBatch(Note("c"), options: TaskOptions(priority: .low))
      }
      let batch = try await queue.enqueue(contentsOf: [Note("folder")], then: Note("notify"))
      #expect(try await queue.runAvailable() == 5)
      #expect(log.entries.first == "folder" && log.entries.last == "notify")
      #expect(try await batch.follower.outcome() == .succeeded)
    }
  }

  @Test func `a handler can't add a task with a dependency or an order key to its batch`()
    async throws
  {
    let errors = Log<TaskQueueError?>()
    let queue = await makeQueue(on: InMemoryStore()) { note, context in
      guard note.text != "notify" else { return }
      for options in [TaskOptions(dependencies: [context.id]), TaskOptions(orderKey: "k")] {
        let error = await queueError {
          try await context.enqueueInBatch(Note("more"), options: options)
        }
        errors.add(error)
      }
    }
    try await queue.enqueue(contentsOf: [Note("photo")], then: Note("notify"))
    try await queue.runAvailable()
    #expect(errors.entries.map(\.?.code) == [.invalidArgument, .invalidArgument])
    // A task that belongs to no batch can't add tasks to a batch.
    let alone = await makeQueue(on: InMemoryStore()) { note, context in
      errors.add(await queueError { try await context.enqueueInBatch(Note("more")) })
    }
    try await alone.enqueue(Note("alone"))
    try await alone.runAvailable()
    #expect(errors.entries.last??.message.contains("belongs to no batch") == true)
  }

  @Test func `a follower with a unique key is rejected`() async throws {
    struct Keyed: TaskPayload { var uniqueKey: String? { "k" } }
    let queue = await makeQueue(on: InMemoryStore())
    let error = await queueError {
      try await queue.enqueue(contentsOf: [Note("photo")], then: Keyed())
    }
    #expect(error?.code == .invalidArgument)
    #expect(try await queue.count == 0)
  }

  @Test(arguments: StoreKind.allCases)
  func `a batch is rejected as a whole if one of its tasks is a duplicate`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      struct Upload: TaskPayload {
        var number: Int
        var uniqueKey: String? { "\(number)" }
      }
      let queue = await makeQueue(on: store)
      try await queue.enqueue(Upload(number: 2))
      let error = await queueError {
        try await queue.enqueue(
          contentsOf: [Upload(number: 1), Upload(number: 2)],
          then: Note("n")
        )
      }
      #expect(error?.code == .duplicate)
      #expect(try await queue.count == 1)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a batch and its follower may share an order key`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      let options = TaskOptions(orderKey: "album")
      try await queue.enqueue(
        contentsOf: photos,
        options: options,
        then: Note("notify"),
        followerOptions: options
      )
      #expect(try await queue.runAvailable() == 10)
      #expect(log.entries == photos.map(\.text) + ["notify"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `cancelling a batch cancels its follower`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      let batch = try await queue.enqueue(contentsOf: photos, then: Note("notify"))
      try await batch.cancel()
      #expect(try await queue.runAvailable() == 0)
      #expect(try await batch.follower.outcome() == .cancelled)
    }
  }

  @Test func `a batch continues after its file is reopened`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let first = JSONFileStore(at: url)
      let before = await makeQueue(on: first) { note, _ in
        if note.text == "photo 9" { throw TaskAbandoned("bad") }
      }
      var options = TaskOptions()
      options.dependencyRule = .allEnded
      let batch = try await before.enqueue(
        contentsOf: photos,
        then: Note("notify"),
        followerOptions: options
      )
      try await before.cancel(batch.tasks[0].id)
      await before.shutDown()
      try await first.close()
      let second = JSONFileStore(at: url)
      let after = await makeQueue(on: second) { note, context in
        if note.text == "photo 9" { throw TaskAbandoned("bad") }
        guard note.text == "notify" else { return }
        #expect(context.dependencies.batch == BatchProgress(total: 9, succeeded: 7, failed: 2))
        #expect(context.dependencies.failed.count == 2)
      }
      #expect(try await after.runAvailable() == 9)
      #expect(log.entries.last == "notify")
      try await second.close()
    }
  }
}
