import SteadfastTesting
import Synchronization
import Testing

/// Tests of the limit of a virtual time, and of tasks that use its clock from outside.
@Suite(.timeLimit(.minutes(5))) struct VirtualTimeLimitTests {
  private struct Endless: TaskPayload {}
  private struct Offline: Error {}

  @Test func `a task that is always retried reaches the limit`() async throws {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime(limit: .seconds(86_400)) { time in
        let queue = TaskQueue(
          configuration: TaskQueueConfiguration(backoff: .constant(.seconds(3_600))),
          clock: time.clock
        )
        await queue.register(Endless.self) { _, _ in throw Offline() }
        try await queue.enqueue(Endless(), maxRetries: .alwaysRetry)
        try await queue.run()
      }
    }
    #expect(error?.code == .limitReached)
    #expect(error?.description.contains("the limit is 86400.0 seconds") == true)
    #expect(error.map { $0.now.offset <= .seconds(86_400) } == true)
  }

  @Test func `the default limit is ten years`() async throws {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        while true { try await time.clock.sleep(for: .seconds(86_400)) }
      }
    }
    #expect(error?.code == .limitReached)
    #expect(error.map { $0.now.offset > .seconds(86_400 * 365 * 10) } == true)
  }

  @Test func `a sleep can be of any length`() async throws {
    try await withVirtualTime { time in
      try await time.clock.sleep(for: .seconds(86_400 * 365 * 1_000))
      try await time.clock.sleep(for: .seconds(1))
      #expect(time.clock.now.offset == .seconds(86_400 * 365 * 1_000 + 1))
    }
  }

  @Test(arguments: [VirtualTime.Mode.manual, .automatic])
  func `advance() does not count towards the limit, in either mode`(
    mode: VirtualTime.Mode
  ) async throws {
    try await withVirtualTime(mode, limit: .seconds(3_600)) { time in
      async let sleep: Void = time.clock.sleep(for: .seconds(5_400))
      await time.advance(by: .seconds(7_200))
      try await sleep
      #expect(time.clock.now.offset == .seconds(7_200))
    }
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime(limit: .seconds(3_600)) { time in
        await time.advance(by: .seconds(7_200))
        try await time.clock.sleep(for: .seconds(3_600))
        try await time.clock.sleep(for: .seconds(1))
      }
    }
    #expect(error?.code == .limitReached)
    #expect(error?.now.offset == .seconds(7_200 + 3_600))
  }

  @Test func `a body that continues after its time limit is left behind`() async throws {
    let stop = Mutex(false)
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime(limit: .seconds(10)) { time in
        while !stop.withLock({ $0 }) {
          await Task(executorPreference: time.executor) {
            try? await time.clock.sleep(for: .seconds(1))
          }.value
        }
      }
    }
    stop.withLock { $0 = true }
    #expect(error?.code == .limitReached)
    #expect(error?.description.contains("was left behind") == true)
  }

  @Test func `a task that does not run in a virtual time can't sleep on the virtual time's clock`()
    async
  {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        // The mistake: this task does not run in the virtual time.
        let sleep = Task { try await time.clock.sleep(for: .seconds(60)) }
        try await sleep.value
      }
    }
    #expect(error?.code == .sleepOutside)
    #expect(error?.description.contains("the executorPreference time.executor") == true)
  }

  @Test func `a sleep outside of the virtual time is reported even if the task ignores the error`()
    async
  {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        // The same mistake.
        let sleep = Task { try? await time.clock.sleep(for: .seconds(60)) }
        await sleep.value
      }
    }
    #expect(error?.code == .sleepOutside)
  }

  @Test(arguments: [false, true])
  func `a task that does not run in a virtual time can't run a queue on the virtual time's clock`(
    isPass: Bool
  ) async {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        let queue = TaskQueue(name: "uploads", clock: time.clock)
        // The same mistake, with a queue. The application ignores the error.
        let running = Task {
          if isPass { _ = try? await queue.runAvailable() } else { try? await queue.run() }
        }
        await time.withRealWork { await running.value }
      }
    }
    #expect(error?.code == .sleepOutside)
    #expect(error?.description.contains("the queue 'uploads'") == true)
    #expect(error?.description.contains("the executorPreference time.executor") == true)
  }

  @Test @MainActor func `a queue can run on the main actor, or on the virtual time's executor`()
    async throws
  {
    try await withVirtualTime { time in
      let queue = TaskQueue(clock: time.clock)
      try await queue.runAvailable()
      async let child: Void = queue.run()
      let other = TaskQueue(clock: time.clock)
      let task = Task(executorPreference: time.executor) { try await other.run() }
      await queue.shutDown()
      await other.shutDown()
      try await child
      try await task.value
    }
  }

  @Test func `a queue on another clock can run anywhere`() async throws {
    try await withVirtualTime { time in
      let queue = TaskQueue(clock: ContinuousClock())
      // This task does not run in the virtual time.
      let pass = Task { try await queue.runAvailable() }
      let count = try await time.withRealWork { try await pass.value }
      #expect(count == 0)
    }
  }

  @Test func `outside of a virtual time, VirtualTime.required throws`() {
    let error = #expect(throws: VirtualTimeError.self) { _ = try VirtualTime.required }
    #expect(error?.code == .missing)
    #expect(error?.description.contains("the trait .virtualTime") == true)
  }

  @Test(.virtualTime) func `the current virtual time is the one that the trait creates`() throws {
    #expect(try VirtualTime.required === VirtualTime.current)
  }
}
