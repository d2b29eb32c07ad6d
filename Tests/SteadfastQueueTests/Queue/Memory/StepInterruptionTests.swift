import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests steps whose attempt is cancelled, whose task is taken over, or whose store fails.
@Suite(.virtualTime) struct StepInterruptionTests {
  private let test: StepQueue

  init() throws { test = try StepQueue() }

  @Test func `no step starts in a cancelled attempt, but a step under way is still stored`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      _ = try await context.step("slow") { _ in
        await test.workDespiteCancellation(for: .seconds(5))
        test.logWithTime("slow")
        return 1
      }
      _ = try await context.performLoggedStep("next", in: test)
    }
    let task = try await queue.enqueue(Note("a"))
    async let run: Void = queue.run()
    try await test.clock.sleep(for: .seconds(1))
    await queue.shutDown(within: .zero)
    try? await run
    #expect(test.log.entries == ["5 slow"])
    #expect(try await queue.memory(of: task.id).steps == ["slow"])
    #expect(try await queue.core.storage.record(of: task.id)?.retryCount == 0)
  }

  @Test
  func `a step is stored even if its attempt is cancelled and the store is unavailable`()
    async throws
  {
    let store = FaultInjectingStore()
    store.inject(.transientError, .beforeEffect, times: 3) { $0.changes.contains("remember") }
    let queue = await test.makeQueue(on: store) { [test] _, context in
      _ = try await context.step("slow") { _ in
        await test.workDespiteCancellation(for: .seconds(5))
        test.logWithTime("slow")
      }
      try Task.checkCancellation()
      test.logWithTime("done")
    }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await test.clock.sleep(for: .seconds(1))
      #expect(try await queue.pause(task.id))
      try await test.clock.sleep(for: .seconds(60))
      #expect(try await queue.resume(task.id))
      try await test.clock.sleep(for: .seconds(60))
    }
    #expect(test.log.entries.map { $0.split(separator: " ")[1] } == ["slow", "done"])
  }

  @Test func `a cancelled run doesn't wait for an unavailable store`() async throws {
    let store = FaultInjectingStore()
    store.inject(.transientError, .beforeEffect, times: .max) { $0.changes.contains("remember") }
    let queue = await test.makeQueue(on: store) { [test] _, context in
      try await context.step("slow") { _ in
        await test.workDespiteCancellation(for: .seconds(5))
        test.logWithTime("slow")
      }
    }
    let task = try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await test.clock.sleep(for: .seconds(1))
      async let pausing = queue.pause(task.id)
      try await test.clock.sleep(for: .seconds(20))
      group.cancelAll()
      _ = try? await pausing
      try? await group.waitForAll()
    }
    #expect(test.log.entries == ["5 slow"])
    #expect(try await queue.core.storage.record(of: task.id)?.retryCount == 0)
  }

  @Test func `a restart continues where the task stopped, or starts from the beginning`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] note, context in
      _ = try await context.performLoggedStep("one", in: test)
      if note.text == "bad" { throw TaskAbandoned("no") }
    }
    let task = try await queue.enqueue(Note("bad"))
    try await queue.runAvailable()
    #expect(try await queue.retry(task.id))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 one"])
    #expect(try await queue.retry(task.id, forgetting: true))
    #expect(try await queue.memory(of: task.id).isEmpty)
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 one", "0 one"])
    #expect(try await queue.retry(matching: .deadLetters, forgetting: true) == 1)
    try await queue.runAvailable()
    #expect(test.log.count == 3)
  }

  @Test func `progress resets the retry count if the queue's configuration says so`() async throws {
    for renews in [false, true] {
      let configuration = TaskQueueConfiguration(
        backoff: .constant(.seconds(1)),
        progressRenewsRetries: renews,
        abandonedRetention: .forever
      )
      let queue = await test.makeQueue(
        on: InMemoryStore(),
        configuration: configuration
      ) { [test] _, context in
        let memory = try await context.queue.store.memory(of: context.id)
        guard memory.steps.count < 5 else { return }
        _ = try await context.performLoggedStep("step \(memory.steps.count)", in: test)
        throw Refusal()
      }
      let task = try await queue.enqueue(Note("a"), maxRetries: 2)
      async let ending = task.outcome()
      try await VirtualTime.current?.drain(queue)
      if renews {
        #expect(try await ending == .succeeded)
      } else {
        #expect(try await ending == .abandoned(reason: "refused"))
      }
    }
  }

  @Test func `a step isn't stored if another queue has taken over its task`() async throws {
    let store = SharedStore(StoreSharing(leaseDuration: .seconds(10), pollInterval: .seconds(1)))
    let queue = TaskQueue(persistence: store.process(), clock: test.clock)
    let other = store.process()
    await queue.register(Note.self) { [test] _, context in
      store.advanceClock(by: .seconds(1000))
      let request = ClaimRequest(
        limit: 1,
        names: ["Note": 1],
        now: test.clock.date,
        leaseDuration: .seconds(1000)
      )
      let claim = try await other.claim(request)
      #expect(claim.tasks.map(\.lease.id) == [context.id])
      await #expect(throws: CancellationError.self) { try await context.step("late") { _ in } }
      // The attempt is cut short.
      let wasCut = await Self.endsByCancellation { try await test.clock.sleep(for: .seconds(3600)) }
      #expect(wasCut)
      test.logWithTime("cut short")
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 cut short"])
    #expect(try await queue.memory(of: task.id).isEmpty)
    #expect(try await queue.core.storage.record(of: task.id)?.state == .running)
  }

  /// Returns whether work is ended by cancellation.
  private static func endsByCancellation(_ work: () async throws -> Void) async -> Bool {
    do { try await work() } catch { return error is CancellationError }
    return false
  }

  @Test func `a failing store stops the queue, and the attempt doesn't count`() async throws {
    let store = FaultInjectingStore()
    let queue = await test.makeQueue(on: store) { [test] _, context in
      _ = try await context.performLoggedStep("one", in: test)
      _ = try await context.performLoggedStep("two", in: test)
    }
    let task = try await queue.enqueue(Note("a"))
    store.inject(.error(Refusal("the disk is full")), .beforeEffect) { call in
      call.changes.contains {
        if case .memory(.remember(_, "step:two", _)) = $0 { true } else { false }
      }
    }
    let error = try await #require(throws: TaskQueueError.self) { try await queue.runAvailable() }
    #expect(error.code == .storeFailed)
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 one", "0 two", "0 two"])
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `a context can't perform a step after its attempt`() async throws {
    let stored = Mutex<TaskContext?>(nil)
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      stored.withLock { $0 = context }
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let last = stored.withLock { $0 }
    let context = try #require(last)
    let error = await #expect(throws: StepError.self) { try await context.step("a") { _ in } }
    #expect(error?.code == .attemptIsOver)
  }
}
