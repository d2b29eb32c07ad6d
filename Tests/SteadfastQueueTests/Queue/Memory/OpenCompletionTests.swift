import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests tasks that wait for several completions.
@Suite(.virtualTime) struct OpenCompletionTests {
  private let test: StepQueue
  private let tokens = Log<TaskToken>()

  init() throws { test = try StepQueue() }

  /// Makes a queue whose tasks open two completions, and first await the completion with the
  /// longer time limit.
  private func makeQueue() async -> TaskQueue {
    await test.makeQueue(on: InMemoryStore()) { [test, tokens] _, context in
      let bank = try await context.openCompletion("bank", of: Int.self, within: .seconds(100)) {
        tokens.add($0)
      }
      let stock = try await context.openCompletion("stock", of: Int.self, within: .seconds(10)) {
        tokens.add($0)
      }
      test.logWithTime("begins")
      let amount = try await bank.value
      do {
        test.logWithTime("\(amount) \(try await stock.value)")
      } catch let error as CompletionFailed {
        test.logWithTime("\(amount), but \(error)")
      }
    }
  }

  @Test func `a completion that isn't awaited yet wakes the task, which then waits again`()
    async throws
  {
    let queue = await makeQueue()
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[1], with: 2))
    #expect(try await queue.runAvailable() == 1)
    let record = try await queue.core.storage.record(of: task.id)
    #expect(record?.state == .suspended && record?.retryCount == 0)
    #expect(record?.availableDate == test.clock.date + 100)
    #expect(try await queue.complete(tokens.entries[0], with: 1))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 begins", "0 begins", "0 begins", "0 1 2"])
  }

  @Test(arguments: [false, true])
  func `a completion times out if it is awaited after its deadline`(comesLate: Bool) async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    test.clock.advance(by: .seconds(50))
    #expect(try await queue.runAvailable() == 0)
    #expect(try await queue.complete(tokens.entries[0], with: 1))
    if comesLate { #expect(try await queue.complete(tokens.entries[1], with: 2)) }
    try await queue.runAvailable()
    let end = comesLate ? "1 2" : "1, but the completion 'stock' has timed out"
    #expect(test.log.entries == ["0 begins", "50 begins", "50 \(end)"])
    #expect(try await !queue.complete(tokens.entries[1], with: 3))
  }

  @Test func `of two calls with the same token, only the first completes the task`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test, tokens] _, context in
      let answer = try await context.completion("answer", of: String.self) { token in
        for _ in ["bank", "stock"] { tokens.add(token) }
      }
      test.logWithTime(answer)
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[1], with: "stock"))
    #expect(try await !queue.complete(tokens.entries[0], with: "bank"))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 stock"])
  }

  @Test func `the error for a completion with a value of another type names the expected type`()
    async throws
  {
    let tokens = Log<TaskToken>()
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      _ = try await context.completion("count", of: Int.self) { tokens.add($0) }
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    try await queue.complete(tokens.entries[0], with: "three")
    try await queue.runAvailable()
    let record = try #require(try await queue.core.storage.record(of: task.id))
    #expect(record.state == .parked)
    #expect(
      record.lastError
        == "the value under 'count' in the task's memory does not have the type Int; register a "
        + "handler that can decode it, or retry the task with forgetting: true"
    )
  }

  @Test func `a handler that continues after a suspension can't add tasks`() async throws {
    let errors = Log<Bool>()
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      _ = try? await context.completion("reply") { _ in }
      let calls: [() async throws -> Void] = [
        { try await context.enqueue(Note("b"), delay: .seconds(60)) },
        { try await context.enqueue(contentsOf: [Note("c")]) },
        { try await context.enqueue(name: "d") },
      ]
      for call in calls {
        do {
          try await call()
        } catch {
          errors.add(error is TaskSuspended)
        }
      }
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(errors.entries == [true, true, true])
    #expect(try await queue.count == 1)
  }
}
