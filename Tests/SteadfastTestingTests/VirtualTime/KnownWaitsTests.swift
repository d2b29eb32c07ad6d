import Foundation
import SteadfastTesting
import Testing

/// What a test is told that waits for a queue for ever.
@Suite(.timeLimit(.minutes(5))) struct KnownWaitsTests {
  private struct Work: TaskPayload { var number = 0 }

  private func text(
    _ body: @escaping @Sendable (VirtualTime) async throws -> Void
  ) async -> String {
    do {
      try await withVirtualTime { try await body($0) }
      return "nothing is wrong"
    } catch {
      return "\(error)"
    }
  }

  @Test func `the queue is not run`() async {
    let text = await text { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      _ = try await queue.enqueue(Work()).outcome()
    }
    #expect(text.contains("the outcome of the task '"))
    #expect(text.contains("in the queue 'default', which does not run: call run()"))
  }

  @Test func `a queue that runs was not shut down`() async {
    let text = await text { time in
      let queue = TaskQueue(name: "mail", clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("the run of the queue 'mail', which is idle: call shutDown()"))
  }

  @Test func `no handler is registered`() async {
    let text = await text { time in
      let queue = TaskQueue(clock: time.clock)
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("no handler is registered for '"))
  }

  @Test func `a handler waits for a task that can't begin`() async {
    let text = await text { time in
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
    #expect(text.contains("which can't begin: the queue performs 1, as many as it may"))
  }

  @Test func `the queue is paused`() async {
    let text = await text { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      await queue.pause()
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("which is paused: call resume()"))
  }

  @Test func `the queue is paused in its store`() async {
    let text = await text { time in
      let queue = TaskQueue(clock: time.clock)
      await queue.register(Work.self) { _, _ in }
      try await queue.pause(durability: .relaxed)
      async let run: Void = queue.run()
      _ = try await queue.enqueue(Work()).outcome()
      try await run
    }
    #expect(text.contains("which is paused in its store: call resume(durability:)"))
  }

  @Test func `the queue has another clock`() async {
    let text = await text { time in
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
