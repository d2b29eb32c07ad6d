import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests commands that the store doesn't store, or that it stores although the call fails.
@Suite(.virtualTime) struct LostRequestTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Pauses a task whose retry is being stored, and makes the store fail to store the pause.
  ///
  /// - Returns: The queue, whose run has failed, and the task.
  private func makeFailedPause(
    whenPaused makeFail: (TaskQueue) -> Void
  ) async throws -> (TaskQueue, EnqueuedTask) {
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal("not yet") }
    let task = try await queue.enqueue(Note("a"))
    store.inject(.hang) { $0.changes.contains("retry") }
    async let failure = queueError { try await queue.runAvailable() }
    try await store.waitForHeldCalls()
    #expect(try await queue.pause(task.id))
    makeFail(queue)
    store.letGo()
    #expect(await failure?.code == .storeFailed)
    return (queue, task)
  }

  @Test func `after a shutdown, a new command for a task replaces a failed command`()
    async throws
  {
    let (queue, task) = try await makeFailedPause { queue in
      queue.beginShutDown()
      store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == .tasks }
    }
    store.restore()
    #expect(try await queue.cancel(task.id))
    #expect(try await queue.count == 0)
  }

  @Test
  func `if a new command fails, the next run still carries out the earlier command`() async throws {
    let (queue, task) = try await makeFailedPause { _ in
      store.inject(.error(Refusal("the disk is on fire")), times: 2) { $0.kind == .tasks }
    }
    await #expect(throws: Refusal.self) { try await queue.retry(task.id) }
    #expect(try await queue.runAvailable() == 0)
    #expect(try await task.record()?.state == .paused)
  }

  @Test
  func `if resuming a task fails, the next run still carries out the earlier pause`() async throws {
    let (queue, task) = try await makeFailedPause { _ in
      store.inject(.error(Refusal("the line is cut"))) { $0.changes.contains("pause") }
    }
    store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == .tasks }
    await #expect(throws: Refusal.self) { try await queue.resume(task.id) }
    #expect(try await queue.runAvailable() == 0)
    #expect(try await task.record()?.state == .paused)
  }

  @Test func `a command for all tasks is carried out after an earlier command for one task`()
    async throws
  {
    let (queue, task) = try await makeFailedPause { _ in
      store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == .tasks }
    }
    #expect(try await queue.retry(matching: TaskFilter()) == 1)
    #expect(try await queue.runAvailable() == 1)
    #expect(try await task.record()?.state == .waiting)
  }

  @Test func `resuming a task ends a pause that was stored by a call that failed`() async throws {
    let (queue, task) = try await makeFailedPause { _ in
      store.inject(.error(Refusal("the line is cut")), .afterEffect) {
        $0.changes.contains("pause")
      }
    }
    #expect(try await task.record()?.state == .paused)
    #expect(try await queue.resume(task.id))
    #expect(try await task.record()?.state == .waiting)
  }
}
