import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Mail: TaskPayload { var text: String }

/// Tests pauses that can't be stored or read.
extension StoredPauseTests {
  @Test func `a pause that can't be stored has no effect`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.open()
    store.inject(.error(Refusal("full"))) { $0.kind == .apply }
    await #expect(throws: Refusal.self) { try await queue.pause(durability: .durable) }
    #expect(!queue.isPaused)
    store.inject(.error(Refusal("full"))) { $0.kind == .value }
    await #expect(throws: Refusal.self) {
      try await queue.pause(name: "Mail", durability: .durable)
    }
    #expect(queue.pausedNames == [])
    try await queue.pause(durability: .durable)
    #expect(queue.isPaused)
  }

  @Test func `a store that fails to read the pause stops the run`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Mail(text: "mail"))
    store.inject(.error(Refusal("no route"))) { $0.kind == .value }
    let error = await queueError { try await queue.run() }
    #expect(error?.code == .storeFailed)
    #expect(error?.message.contains("could not read the stored pause: no route") == true)
    #expect(!store.calls.contains { $0.kind == .claim })
    #expect(try await queue.runAvailable() == 1)
  }

  @Test(arguments: ["", "[]", "{\"names\":1}", "paused"])
  func `a stored pause that can't be decoded prevents the queue from running`(text: String)
    async throws
  {
    let store = InMemoryStore()
    let value = TaskChange.setValue(named: "steadfast.pause", from: nil, to: Array(text.utf8))
    _ = try await store.apply([value], durability: .durable)
    let queue = await makeQueue(on: store)
    let calls: [@Sendable () async throws -> Void] = [
      { try await queue.open() }, { try await queue.resume(durability: .durable) },
    ]
    for call in calls {
      let error = await queueError(call)
      #expect(error?.code == .storeFailed)
      #expect(error?.message.contains("'steadfast.pause'") == true)
    }
    let error = await queueError { try await queue.run() }
    #expect(error?.code == .storeFailed)
    #expect(try await store.value(named: "steadfast.pause") == Array(text.utf8))
  }

  @Test func `unknown properties added by a later version are ignored`() async throws {
    let store = InMemoryStore()
    let text = #"{"later":[1],"names":["Mail"],"queue":false}"#
    let value = TaskChange.setValue(named: "steadfast.pause", from: nil, to: Array(text.utf8))
    _ = try await store.apply([value], durability: .durable)
    let queue = await makeQueue(on: store)
    try await queue.open()
    #expect(queue.pausedNames == ["Mail"] && !queue.isPaused)
  }

  @Test func `a cancelled call still stores its pause, but doesn't wait for a claim`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    store.inject(.hang) { $0.kind == .claim }
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      await withTaskGroup { group in
        group.addTask { try? await queue.pause(name: "Note", durability: .durable) }
        group.addTask { try? await queue.pause(durability: .durable) }
        group.cancelAll()
      }
      #expect(queue.pausedNames == ["Note"])
      #expect(queue.isPaused)
      store.letGo()
    }
    #expect(try await store.value(named: "steadfast.pause") != nil)
  }
}
