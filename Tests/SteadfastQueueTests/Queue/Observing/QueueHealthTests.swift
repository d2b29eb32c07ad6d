import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests what a queue says about itself without asking its store.
@Suite(.virtualTime) struct QueueHealthTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: some Persistence) -> TaskQueue {
    TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(notice: nil),
      clock: clock
    )
  }

  @Test func `the phases of a queue`() async throws {
    let queue = makeQueue(on: InMemoryStore())
    let begun = AsyncSignal()
    let mayEnd = AsyncSignal()
    await queue.register(Note.self) { _, _ in
      begun.signal()
      await mayEnd.wait()
    }
    #expect(queue.health.phase == .idle && !queue.health.isReady && queue.health.isAlive)
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      await begun.wait()
      #expect(queue.health.phase == .running && queue.health.isReady)
      await queue.pause()
      #expect(queue.health.phase == .paused && queue.health.isReady)
      await queue.resume()
      queue.beginShutDown()
      #expect(queue.health.phase == .ending && !queue.health.isReady && queue.health.isAlive)
      mayEnd.signal()
      _ = try await task.outcome()
    }
    await queue.shutDown()
    #expect(queue.health.phase == .ended && queue.health.isAlive)
  }

  @Test func `a queue that waits for its store is alive and not ready, and says since when`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { [clock] note, context in
      guard note.text == "first" else { return }
      #expect(queue.health.isReady && queue.health.storeAwaySince == nil)
      let start = clock.date
      store.cutOff(throwing: TransientFault())
      async let second = context.enqueue(Note("second"))
      for _ in 0..<6 {
        try await clock.sleep(for: .seconds(10))
        let health = queue.health
        #expect(health.phase == .running && !health.isReady && health.isAlive)
        #expect(health.storeAwaySince.map { abs($0.timeIntervalSince(start)) < 0.001 } == true)
      }
      store.restore()
      _ = try await second
      #expect(queue.health.isReady && queue.health.storeAwaySince == nil)
    }
    let task = try await queue.enqueue(Note("first"))
    try await withRunning(queue) { _ = try await task.outcome() }
  }

  private struct Broken: Error {}

  @Test func `a queue whose run has failed is not alive until it runs again`() async throws {
    let store = FaultInjectingStore()
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    store.inject(.error(Broken())) { $0.kind == .claim }
    let error = await queueError { try await queue.runAvailable() }
    let failure = queue.health.failure as? TaskQueueError
    #expect(failure?.code == error?.code && error?.code == .storeFailed)
    #expect(queue.health.phase == .idle && !queue.health.isAlive && !queue.health.isReady)
    #expect(try await queue.runAvailable() == 1)
    #expect(queue.health.isAlive)
  }

  @Test func `a queue that can't open its store is not alive`() async throws {
    let store = FaultInjectingStore()
    let queue = makeQueue(on: store)
    store.inject(.error(Broken())) { $0.kind == .open }
    await #expect(throws: Broken.self) { try await queue.run() }
    #expect(queue.health.failure is Broken && !queue.health.isAlive)
    #expect(try await queue.runAvailable() == 0)
    #expect(queue.health.isAlive)
    let other = makeQueue(on: store)
    store.inject(.error(Broken())) { $0.kind == .open }
    await #expect(throws: Broken.self) { try await other.run(within: .seconds(5)) }
    #expect(other.health.failure is Broken && !other.health.isAlive)
  }

  @Test func `a queue is not ready while it asks its store again`() async throws {
    let store = FaultInjectingStore()
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { [clock] note, context in
      guard note.text == "first" else { return }
      // Each try takes 10 seconds, and the waits in between at most 5.
      for fault: FaultInjectingStore.Fault in [.delay(.seconds(10), on: clock), .transientError] {
        store.inject(fault, times: 5) { $0.kind == .apply }
      }
      async let second = context.enqueue(Note("second"))
      try await clock.sleep(for: .seconds(10.5))
      for _ in 0..<40 {
        #expect(!queue.health.isReady)
        try await clock.sleep(for: .seconds(1))
      }
      _ = try await second
      #expect(queue.health.isReady && queue.health.storeAwaySince == nil)
    }
    let task = try await queue.enqueue(Note("first"))
    try await withRunning(queue) { _ = try await task.outcome() }
  }
}
