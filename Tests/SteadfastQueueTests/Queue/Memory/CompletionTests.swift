import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests completions, which a task waits for.
@Suite(.virtualTime) struct CompletionTests {
  private let test: StepQueue
  private let tokens = Log<TaskToken>()

  init() throws { test = try StepQueue() }

  private func makeAwaitingQueue(
    on store: any Persistence,
    within limit: Duration? = nil
  ) async -> TaskQueue {
    await test.makeQueue(on: store) { [test, tokens] _, context in
      do {
        let value = try await context.completion("upload", of: String.self, within: limit) {
          test.logWithTime("hand out")
          tokens.add($0)
        }
        test.logWithTime(value)
      } catch let error as CompletionFailed {
        test.logWithTime("\(error)")
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a clock that was ahead when a task was added doesn't delay its completion`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      // In a shared store, dates come from several clocks, so they aren't adjusted.
      guard store.sharing == nil else { return }
      let queue = await makeAwaitingQueue(on: store)
      try await queue.enqueue(Note("a"))
      try await queue.runAvailable()
      test.clock.setDate(test.clock.date - 86_400)
      try await queue.runAvailable()
      #expect(try await queue.complete(tokens.entries[0], with: "etag"))
      #expect(try await queue.runAvailable() == 1)
      #expect(test.log.entries == ["0 hand out", "0 etag"])
    }
  }

  @Test func `the error for a value that can't be encoded doesn't reveal the value`() async throws {
    let queue = await makeAwaitingQueue(on: InMemoryStore())
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let token = tokens.entries[0]
    let error = await #expect(throws: EncodingError.self) {
      try await queue.complete(token, with: ["my secret": Double.nan])
    }
    #expect(error.map { !"\($0)".contains("secret") && "\($0)".contains("Double") } == true)
    #expect(try await queue.complete(token, with: "etag"))
  }

  @Test(arguments: StoreKind.allCases)
  func `a task's completion may arrive through a later queue on the same store`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = await makeAwaitingQueue(on: store)
      let task = try await first.enqueue(Note("a"))
      try await first.runAvailable()
      #expect(try await first.core.storage.record(of: task.id)?.state == .suspended)
      await first.shutDown()
      test.clock.advance(by: .seconds(86_400))
      let second = await makeAwaitingQueue(on: store)
      #expect(try await second.runAvailable() == 0)
      let token = try #require(TaskToken(tokens.entries[0].description))
      #expect(token == tokens.entries[0])
      #expect(token.description.count == 69)
      let pending = try await second.pendingCompletions()
      #expect(
        pending == [
          PendingCompletion(token: token, taskName: "Note", name: "upload", deadline: nil)
        ]
      )
      let events = second.events
      #expect(try await second.complete(token, with: "etag"))
      #expect(try await second.pendingCompletions().isEmpty)
      #expect(try await !second.complete(token, with: "again"))
      #expect(try await second.core.storage.record(of: task.id)?.state == .waiting)
      #expect(try await second.runAvailable() == 1)
      #expect(test.log.entries == ["0 hand out", "86400 etag"])
      #expect(try await !second.complete(token, with: "too late"))
      await second.shutDown()
      var arrived: [TaskID] = []
      for await case .completionArrived(let id) in events { arrived.append(id) }
      #expect(arrived == [task.id])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a completion that arrives before the task waits isn't missed`(kind: StoreKind) async throws
  {
    try await kind.withStore { store in
      let queue = await test.makeQueue(on: store) { [test] note, context in
        let value = try await context.completion("upload", of: String.self) { token in
          let isFirst = try await context.queue.results.complete(token, with: "at once")
          #expect(isFirst)
        }
        test.logWithTime(value)
      }
      try await queue.enqueue(Note("a"))
      #expect(try await queue.runAvailable() == 1)
      #expect(test.log.entries == ["0 at once"])
    }
  }

  @Test func `a completion wakes a running queue`() async throws {
    let queue = await makeAwaitingQueue(on: InMemoryStore())
    try await withRunning(queue) { [test, tokens] in
      let task = try await queue.enqueue(Note("a"))
      try await test.clock.sleep(for: .seconds(5))
      #expect(try await queue.complete(tokens.entries[0], with: "etag"))
      #expect(try await task.outcome() == .succeeded)
      #expect(test.log.entries == ["0 hand out", "5 etag"])
    }
  }

  @Test func `an error or a timeout is stored as the outcome of a completion`() async throws {
    let queue = await makeAwaitingQueue(on: InMemoryStore(), within: .seconds(100))
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[0], failing: Refusal("no space")))
    try await queue.runAvailable()
    #expect(test.log.entries.last == "0 the completion 'upload' has failed: no space")

    try await queue.enqueue(Note("b"))
    try await queue.runAvailable()
    #expect(
      try await queue.pendingCompletions().map(\.deadline) == [test.clock.date + 100]
    )
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries.last == "100 the completion 'upload' has timed out")
    #expect(try await !queue.complete(tokens.entries[1], with: "too late"))
  }

  @Test func `a failed completion abandons the task if the handler doesn't catch the error`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      _ = try await context.completion("upload", of: Int.self, within: .seconds(1)) { _ in }
    }
    let task = try await queue.enqueue(Note("a"), maxRetries: .alwaysRetry)
    try await VirtualTime.current?.drain(queue)
    let record = try #require(try await queue.core.storage.record(of: task.id))
    #expect(record.lastError == "the completion 'upload' has timed out")
    #expect(record.retryCount == 0)
  }

  @Test func `several open completions may arrive in any order`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test, tokens] _, context in
      let bank = try await context.openCompletion("bank", of: Int.self) { tokens.add($0) }
      let stock = try await context.openCompletion("stock", of: Int.self) { tokens.add($0) }
      let nothing = try await context.openCompletion("nothing", of: Bool.self) { tokens.add($0) }
      let values = (try await bank.value, try await stock.value, try await nothing.value)
      test.logWithTime("\(values.0) \(values.1) \(values.2)")
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[2], with: true))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[1], with: 2))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[0], with: 1))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 1 2 true"])
    #expect(tokens.count == 3)
  }

  @Test func `a completion may have no value, and a sleep may follow the completion`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test, tokens] _, context in
      try await context.completion("seen", within: .seconds(50)) { tokens.add($0) }
      try await context.sleep("nap", for: .seconds(10))
      test.logWithTime("done")
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[0]))
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries == ["10 done"])
  }

  @Test func `a token with an unknown task, a wrong secret or an erased memory is rejected`()
    async throws
  {
    let queue = await makeAwaitingQueue(on: InMemoryStore())
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let token = tokens.entries[0]
    let forged = TaskToken(taskID: task.id, high: 1, low: 2)
    let unknown = TaskToken(taskID: TaskID(high: 1, low: 1), high: 1, low: 2)
    #expect(try await !queue.complete(forged, with: "x"))
    #expect(try await !queue.complete(unknown, with: "x"))
    await #expect(throws: TaskQueueError.self) {
      try await queue.complete(token, with: String(repeating: "x", count: 70_000))
    }
    #expect(try await queue.retry(task.id, forgetting: true))
    #expect(try await !queue.complete(token, with: "x"))
    #expect(TaskToken("nonsense") == nil)
    #expect(TaskToken(token.description.uppercased()) == nil)
    #expect(TaskToken(token.description + "0") == nil)
    let json = try JSONEncoder().encode([token])
    #expect(try JSONDecoder().decode([TaskToken].self, from: json) == [token])
  }

  @Test(arguments: [false, true])
  func `a queue of a group can complete a task of another queue`(
    isUnavailable: Bool
  ) async throws {
    let store = FaultInjectingStore()
    if isUnavailable { store.inject(.transientError) { $0.changes.contains("complete") } }
    let group = TaskQueueGroup(persistence: store, clock: test.clock)
    let first = try await group.addQueue("first")
    let second = try await group.addQueue("second")
    await first.register(Note.self) { [test, tokens] _, context in
      test.logWithTime(try await context.completion("upload", of: String.self) { tokens.add($0) })
    }
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      let task = try await first.enqueue(Note("a"))
      try await test.clock.sleep(for: .seconds(5))
      #expect(try await second.complete(tokens.entries[0], with: "etag"))
      #expect(try await task.outcome() == .succeeded)
      await group.shutDown()
      try await tasks.waitForAll()
    }
    #expect(test.log.entries.map { $0.hasSuffix(" etag") } == [true])
  }

  @Test func `a timeout that can't be stored stops the queue, and the attempt doesn't count`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeAwaitingQueue(on: store, within: .seconds(5))
    let task = try await queue.enqueue(Note("a"), maxRetries: 0)
    try await queue.runAvailable()
    test.clock.advance(by: .seconds(5))
    store.inject(.error(Refusal("the disk is full")), .beforeEffect) {
      $0.changes.contains("complete")
    }
    let error = try await #require(throws: TaskQueueError.self) { try await queue.runAvailable() }
    #expect(error.code == .storeFailed)
    try await queue.runAvailable()
    #expect(test.log.entries.count == 2)
    #expect(test.log.entries.last?.hasPrefix("5 ") == true)
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `a token is stored before it is handed out, and is the same after a crash`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test, tokens] _, context in
      test.logWithTime(
        try await context.completion("upload", of: String.self) { token in
          tokens.add(token)
          #expect(try await context.queue.pendingCompletions().map(\.token) == [token])
          if context.retryCount == 0 { throw Refusal() }
        }
      )
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    test.clock.advance(by: .seconds(60))
    try await queue.runAvailable()
    #expect(tokens.count == 2)
    #expect(Set(tokens.entries).count == 1)
    #expect(try await queue.complete(tokens.entries[0], with: "etag"))
    try await queue.runAvailable()
    #expect(test.log.entries == ["60 etag"])
  }
}
