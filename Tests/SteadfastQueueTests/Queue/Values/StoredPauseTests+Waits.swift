import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests stored pauses while a claim is under way.
extension StoredPauseTests {
  @Test
  func `a pause waits for the attempt that must start, and no other attempt starts`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect, times: nil) { $0.kind == .claim }
    let queue = await makeQueue(on: store)
    try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    async let attempts = queue.runAvailable()
    try await store.waitForHeldCalls()
    // This pause releases a claimed task, so the next pause waits until the task has started.
    try await queue.pause(durability: .relaxed)
    store.letGo()
    #expect(try await attempts == 0)
    try await queue.resume(durability: .relaxed)
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      async let hasBegun: Bool = {
        try await queue.pause(durability: .relaxed)
        return queue.isProcessing
      }()
      try await clock.sleep(for: .seconds(1))
      store.restore()
      #expect(try await hasBegun)
      try await clock.sleep(for: .seconds(60))
      #expect(log.entries == ["begins a", "a"])
    }
  }

  @Test(arguments: [false, true])
  func `pausing an already paused name also waits for the claim under way`(isStored: Bool)
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.kind == .claim }
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      async let first: Void = {
        if isStored {
          try await queue.pause(name: "Note", durability: .relaxed)
        } else {
          await queue.pause(name: "Note")
        }
      }()
      try await clock.sleep(for: .seconds(1))
      async let end: Duration = {
        try await queue.pause(name: "Note", durability: .relaxed)
        return clock.now.offset
      }()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      try await first
      #expect(try await end == .seconds(2))
    }
  }
}
