import Foundation
import SteadfastTesting
import Testing

/// Tests of the error of a virtual time in which a test waits for a queue forever.
@Suite(.timeLimit(.minutes(5))) struct KnownWaitsTests {
  private struct Work: TaskPayload { var number = 0 }

  /// Returns the description of the error that a virtual time with this body throws.
  private func errorText(
    from body: @escaping @Sendable (VirtualTime) async throws -> Void
  ) async -> String {
    do {
      try await withVirtualTime { try await body($0) }
      return "nothing is wrong"
    } catch {
      return "\(error)"
    }
  }

  @Test func `the error for a wait for an outcome names a queue that never runs`() async {
    let text = await errorText { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      _ = try await queue.enqueue(Work()).outcome()
    }
    #expect(text.contains("the outcome of the task '"))
    #expect(text.contains("in the queue 'default', which does not run: call run()"))
  }

  @Test func `the error names an idle run that was never shut down`() async {
    let text = await errorText { time in
      let queue = TaskQueue(name: "mail", clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("the run of the queue 'mail', which is idle: call shutDown()"))
  }

  @Test func `the error names a missing handler`() async {
    let text = await errorText { time in
      let queue = TaskQueue(clock: time.clock)
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("no handler is registered for the name '"))
  }

  @Test func `the error says that a handler waits for a task beyond the limit of concurrent tasks`()
    async
  {
    let text = await errorText { time in
      let queue = TaskQueue(
        configuration: TaskQueueConfiguration(maxConcurrentTasks: 1),
        clock: time.clock
      )
      await queue.register(Work.self) { work, _ in
        if work.number == 0 { _ = try await queue.enqueue(Work(number: 1)).outcome() }
      }
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("can't start: the queue already performs the maximum number"))
  }

  @Test func `the error names a paused queue`() async {
    let text = await errorText { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      await queue.pause()
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("which is paused: call resume()"))
  }

  @Test func `the error names a queue that is paused in its store`() async {
    let text = await errorText { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      try await queue.pause(durability: .relaxed)
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("which is paused in its store: call resume(durability:)"))
  }

  @Test func `the error names a queue on another clock`() async {
    let text = await errorText { time in
      let queue = TaskQueue()
      await queue.register(Work.self) { _, _ in }
      async let run: Void = queue.run()
      let tomorrow = ContinuousClock().date.addingTimeInterval(86_400)
      _ = try await queue.enqueue(Work(), availableDate: tomorrow).outcome()
      try await run
    }
    #expect(text.contains("on another clock: give the queue the virtual time's"))
  }
}
