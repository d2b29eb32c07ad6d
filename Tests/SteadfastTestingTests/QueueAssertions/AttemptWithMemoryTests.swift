import Foundation
import SteadfastTesting
import Testing

/// Tests of single attempts at a task that works in steps.
@Suite(.virtualTime, .timeLimit(.minutes(5))) struct AttemptWithMemoryTests {
  private let time: VirtualTime

  init() throws { time = try #require(VirtualTime.current) }

  /// Performs an attempt with two steps and then `body`, and records in `trace` which steps run.
  private func performSteps(
    remembering memory: TaskMemory,
    tracing trace: Trace,
    _ body: @escaping @Sendable (TaskContext) async throws -> Void = { _ in }
  ) async throws -> AttemptResult {
    try await performAttempt(Letter("hi"), remembering: memory) { _, context in
      let receipt = try await context.step("charge") { _ in
        trace.note("charge")
        return "new"
      }
      trace.note(receipt)
      try await context.step("wire", repeats: .never) { _ in trace.note("wire") }
      try await body(context)
    }
  }

  @Test func `a remembered step is not performed again`() async throws {
    let trace = Trace()
    let memory = try TaskMemory(steps: ["charge": "old", "pick[7]": 7])
    let result = try await performSteps(remembering: memory, tracing: trace) { context in
      #expect(try await context.step("pick", for: 7) { _ in 8 } == 7)
      throw Offline()
    }
    #expect(trace.entries == ["old", "wire"])
    #expect(result.memory.steps == ["wire", "charge", "pick[7]"])
    #expect(try result.memory.value(ofStep: "charge", as: String.self) == "old")
  }

  @Test func `an attempt continues with the memory of the previous one`() async throws {
    let trace = Trace()
    let first = try await performSteps(remembering: TaskMemory(), tracing: trace) { _ in
      throw Offline()
    }
    let second = try await performSteps(remembering: first.memory, tracing: trace)
    #expect(trace.entries == ["charge", "new", "wire", "new"])
    #expect(second.ending == .succeeded)
    #expect(second.memory.isEmpty)
  }

  @Test
  func
    `a sleep suspends a task until a date, a wait for a completion without a date`()
    async throws
  {
    let trace = Trace()
    let sleep = try await performSteps(remembering: TaskMemory(), tracing: trace) { context in
      try await context.sleep("nap", for: .seconds(60))
    }
    #expect(sleep.ending == .suspended(until: time.clock.date + 60))
    #expect(sleep.nextDate == time.clock.date + 60)
    let completion = try await performSteps(remembering: TaskMemory(), tracing: trace) { context in
      try await context.completion("seen") { _ in }
    }
    #expect(completion.ending == .suspended(until: nil))
    #expect(completion.nextDate == nil)
  }

  @Test func `an interrupted step abandons the task, and an unreadable checkpoint parks the task`()
    async throws
  {
    let trace = Trace()
    let memory = try TaskMemory(steps: ["charge": "old"], interrupted: ["wire"])
    let interrupted = try await performSteps(remembering: memory, tracing: trace)
    #expect(interrupted.error is StepInterrupted)
    guard case .abandoned = interrupted.ending else {
      Issue.record("\(interrupted.ending)")
      return
    }
    let saved = try TaskMemory(checkpoint: 41)
    let result = try await performAttempt(Letter("hi"), remembering: saved) { _, context in
      let count = try await context.checkpoint(Int.self) ?? 0
      try await context.save(count + 1)
      throw Offline()
    }
    #expect(try result.memory.checkpoint(as: Int.self) == 42)
    let parked = try await performAttempt(Letter("hi"), remembering: saved) { _, context in
      _ = try await context.checkpoint(String.self)
    }
    guard case .parked = parked.ending else {
      Issue.record("\(parked.ending)")
      return
    }
  }
}
