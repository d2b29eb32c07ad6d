import Foundation
import SteadfastRetry
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Unencodable: Codable, Sendable {
  var text: String
  private enum CodingKeys: CodingKey { case text }

  func encode(to encoder: any Encoder) throws {
    let path = encoder.codingPath + [CodingKeys.text]
    throw EncodingError.invalidValue(self, .init(codingPath: path, debugDescription: text))
  }
}

/// Tests steps, whose results are stored with their task.
@Suite(.virtualTime) struct StepTests {
  private let test: StepQueue

  init() throws { test = try StepQueue() }

  @Test(arguments: StoreKind.allCases)
  func `a step that has returned isn't performed again, and returns its stored value`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await test.makeQueue(on: store) { [test] _, context in
        let number = try await context.step("number") { step in
          test.logWithTime(step.name)
          return 42
        }
        let text = try await context.performLoggedStep("text", in: test)
        try await context.step("nothing") { _ in test.logWithTime("nothing") }
        let none = try await context.step("none") { _ in Int?.none }
        test.logWithTime("\(number) \(text) \(none as Any)")
        if context.retryCount == 0 { throw Refusal() }
      }
      try await queue.enqueue(Note("a"))
      #expect(try await VirtualTime.current?.drain(queue) == 2)
      #expect(
        test.log.entries == [
          "0 number", "0 text", "0 nothing", "0 42 text nil", "60 42 text nil",
        ]
      )
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a value is stored before its step returns, and is available to a later queue on the store`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = await test.makeQueue(on: store) { [test] _, context in
        _ = try await context.performLoggedStep("one", in: test)
        #expect(try await context.queue.store.memory(of: context.id).steps == ["one"])
        throw Refusal()
      }
      let id = try await first.enqueue(Note("a")).id
      try await first.runAvailable()
      #expect(try await first.core.storage.record(of: id)?.memorySize ?? 0 > 0)
      await first.shutDown()
      let second = await test.makeQueue(on: store) { [test] _, context in
        _ = try await context.performLoggedStep("one", in: test)
        _ = try await context.performLoggedStep("two", in: test)
      }
      try await VirtualTime.current?.drain(second)
      #expect(test.log.entries == ["0 one", "60 two"])
      #expect(try await second.memory(of: id).isEmpty)
    }
  }

  @Test func `a step that throws is performed again in the next attempt`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      _ = try await context.performLoggedStep("before", in: test)
      try await context.step("fails") { _ in
        test.logWithTime("fails")
        if context.retryCount < 2 { throw Refusal() }
      }
    }
    try await queue.enqueue(Note("a"))
    #expect(try await VirtualTime.current?.drain(queue) == 3)
    #expect(test.log.entries == ["0 before", "0 fails", "60 fails", "120 fails"])
  }

  @Test func `concurrent steps are identified by their names`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      let isFirst = context.retryCount == 0
      async let a = context.step(isFirst ? "a" : "b") { _ in isFirst ? "first" : "second" }
      async let b = context.step(isFirst ? "b" : "a") { _ in isFirst ? "first" : "second" }
      test.logWithTime("\(try await a) \(try await b)")
      for item in 1...3 {
        try await context.step("pick", for: item) { step in
          #expect(step.key == "\(context.id)/pick[\(item)]")
          test.logWithTime(step.name)
        }
      }
      if isFirst { throw Refusal() }
    }
    try await queue.enqueue(Note("a"))
    try await VirtualTime.current?.drain(queue)
    #expect(
      test.log.entries == [
        "0 first first", "0 pick[1]", "0 pick[2]", "0 pick[3]", "60 first first",
      ]
    )
  }

  @Test func `a step whose body throws may be repeated within the attempt`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      let clock = test.clock
      try await withRetry(.attempts(3, backoff: .constant(.seconds(1))), clock: clock) {
        try await context.step("charge") { _ in
          test.logWithTime("charge")
          if test.log.count < 3 { throw Refusal() }
        }
      }
      let value: Int = try await withRetry(.attempts(2, backoff: .immediate)) {
        try await context.completion("approval") { token in
          test.logWithTime("ask")
          if test.log.count < 5 { throw Refusal() }
          _ = try await context.queue.results.complete(token, with: 7)
        }
      }
      test.logWithTime("\(value)")
      try await context.step("charge") { _ in }
    }
    let task = try await queue.enqueue(Note("a"))
    _ = try await VirtualTime.current?.drain(queue)
    #expect(
      test.log.entries == [
        "0 charge", "1 charge", "2 charge", "2 ask", "2 ask", "2 7",
      ]
    )
    // A step that has returned can't be repeated within the attempt.
    let outcome = try await task.outcome()
    guard case .abandoned = outcome else {
      Issue.record("\(outcome)")
      return
    }
  }

  @Test func `a repeated name, a nested step, and an invalid name or value abandon the task`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { note, context in
      switch note.text {
      case "twice":
        try await context.step("a") { _ in }
        try await context.step("a") { _ in }
      case "nested":
        try await context.step("a") { _ in try await context.step("b") { _ in } }
      case "sleep in a step":
        try await context.step("a") { _ in try await context.sleep("b", for: .seconds(1)) }
      case "empty": try await context.step("") { _ in }
      case "long": try await context.step(String(repeating: "a", count: 1100)) { _ in }
      case "NUL": try await context.step("a\0") { _ in }
      case "number": _ = try await context.step("a") { _ in Double.nan }
      case "secret":
        _ = try await context.step("a") { _ in ["secret": Unencodable(text: "secret")] }
      default: _ = try await context.step("a") { _ in String(repeating: "x", count: 70_000) }
      }
    }
    let expected: [(String, String)] = [
      ("twice", "used twice"), ("nested", "body of a step"),
      ("sleep in a step", "body of a step"), ("empty", "an empty name"),
      ("long", "1100 bytes of UTF-8"), ("NUL", "contains a NUL"), ("number", "can't be encoded"),
      ("secret", "the Unencodable in '….text' can't be written as JSON"), ("large", "70002 bytes"),
    ]
    for (text, reason) in expected {
      let task = try await queue.enqueue(Note(text))
      try await queue.runAvailable()
      let record = try #require(try await queue.core.storage.record(of: task.id))
      #expect(record.state == .abandoned, "\(text)")
      #expect(record.lastError?.contains(reason) == true, "\(record.lastError ?? "")")
      #expect(record.lastError?.contains("secret") == false)
    }
  }

  @Test func `a name may start with a combining character`() async throws {
    let name = "\u{301}tude"
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      _ = try await context.step(name) { _ in 1 }
      try await context.completion(name) { _ in }
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let memory = try await queue.memory(of: task.id)
    #expect(memory.steps.map { Array($0.utf8) } == [Array(name.utf8)])
    #expect(try memory.value(ofStep: name, as: Int.self) == 1)
    let pending = try await queue.pendingCompletions()
    #expect(pending.map { Array($0.name.utf8) } == [Array(name.utf8)])
  }

  @Test func `the memory of a task is limited by the configuration`() async throws {
    let configuration = TaskQueueConfiguration(maxMemorySize: 100)
    let queue = await test.makeQueue(
      on: InMemoryStore(),
      configuration: configuration
    ) { _, context in
      _ = try await context.step("short") { _ in "x" }
      _ = try await context.step("long") { _ in String(repeating: "x", count: 90) }
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let record = try #require(try await queue.core.storage.record(of: task.id))
    #expect(record.lastError?.contains("maxMemorySize is 100") == true)
    #expect(try await queue.memory(of: task.id).steps == ["short"])
    let bad = TaskQueue(configuration: TaskQueueConfiguration(maxMemorySize: -1))
    await #expect(throws: TaskQueueError.self) { try await bad.open() }
  }

  @Test(arguments: StoreKind.allCases)
  func `a stored value of another type parks the task, even if the handler catches the error`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = await test.makeQueue(on: store) { _, context in
        _ = try await context.step("a") { _ in "text" }
        throw Refusal()
      }
      let task = try await first.enqueue(Note("a"))
      try await first.runAvailable()
      await first.shutDown()
      test.clock.advance(by: .seconds(60))
      let second = await test.makeQueue(on: store) { _, context in
        await #expect(throws: (any Error).self) { () async throws -> Void in
          let _: Int = try await context.step("a") { _ in 1 }
        }
      }
      try await second.runAvailable()
      let record = try #require(try await second.core.storage.record(of: task.id))
      #expect(record.state == .parked)
      #expect(record.lastError?.contains("does not have the type Int") == true)
      #expect(record.lastError?.contains("text") == false)
      await second.shutDown()
      let third = await test.makeQueue(on: store) { [test] _, context in
        test.logWithTime(try await context.step("a") { _ in "new" })
      }
      try await third.runAvailable()
      #expect(test.log.entries == ["60 text"])
    }
  }

  @Test func `a step that never repeats isn't performed again after an interruption`()
    async throws
  {
    let store = InMemoryStore()
    let queue = await test.makeQueue(on: store) { [test] note, context in
      try await context.step("wire", repeats: .never) { _ in
        test.logWithTime("wire")
        if note.text == "bad" { throw Refusal() }
      }
      test.logWithTime("after")
      throw Refusal("later")
    }
    let good = try await queue.enqueue(Note("good"), maxRetries: 1)
    let bad = try await queue.enqueue(Note("bad"), maxRetries: 5)
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries == ["0 wire", "0 after", "0 wire", "60 after"])
    #expect(try await queue.core.storage.record(of: good.id)?.lastError == "later")
    let record = try #require(try await queue.core.storage.record(of: bad.id))
    #expect(record.lastError?.contains("the step 'wire' was interrupted") == true)
    #expect(record.retryCount == 1)
  }

  @Test func `an interrupted step calls its recovery closure, and stores the result`() async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      let receipt = try await context.step("wire", repeats: .never) { _ -> String in
        throw Refusal()
      } ifInterrupted: { step in
        test.logWithTime("ask \(step.name)")
        return "receipt"
      }
      test.logWithTime(receipt)
      if context.retryCount == 1 { throw Refusal() }
    }
    try await queue.enqueue(Note("a"))
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries == ["60 ask wire", "60 receipt", "120 receipt"])
  }
}
