import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a pause that waits until the tasks that the previous pause released have started.
@Suite(.virtualTime) struct PauseWaitTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Runs a queue with one worker, whose claim hangs after a pause has released a task.
  ///
  /// The next pause waits for that claim, because the claimed task must start first.
  private func withClaimThatHangs(_ body: (TaskQueue) async throws -> Void) async throws {
    store.inject(.hang, .afterEffect, times: nil) { $0.kind == .claim }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    async let attempts = queue.runAvailable()
    try await store.waitForHeldCalls()
    await queue.pause()
    store.letGo()
    #expect(try await attempts == 0)
    await queue.resume()
    async let run: Void = queue.run()
    try await store.waitForHeldCalls()
    try await body(queue)
    store.restore()
    await queue.shutDown()
    try await run
  }

  @Test func `a cancelled call that pauses a queue stops waiting, and the queue is paused`()
    async throws
  {
    try await withClaimThatHangs { queue in
      await withTaskGroup { group in
        group.addTask { await queue.pause() }
        group.addTask { [clock] in try? await clock.sleep(for: .seconds(1)) }
        await group.next()
        group.cancelAll()
      }
      #expect(queue.isPaused)
      #expect(clock.now.offset == .seconds(1))
    }
  }

  @Test(arguments: [false, true])
  func `a call that pauses a queue stops waiting when the queue shuts down`(cutsShort: Bool)
    async throws
  {
    try await withClaimThatHangs { queue in
      async let pause: Void = queue.pause()
      try await clock.sleep(for: .seconds(1))
      if cutsShort {
        async let end: Void = queue.shutDown(within: .zero)
        await pause
        store.restore()
        await end
      } else {
        queue.beginShutDown()
        await pause
      }
      #expect(clock.now.offset == .seconds(1))
    }
  }
}
