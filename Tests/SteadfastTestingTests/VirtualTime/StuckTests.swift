import SteadfastTesting
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(5))) struct StuckTests {
  /// Returns the error that a virtual time with this body throws; `nil` if it throws none.
  private func virtualTimeError(
    in mode: VirtualTime.Mode = .automatic,
    from body: @escaping @Sendable (VirtualTime) async throws -> Void
  ) async -> VirtualTimeError? {
    do {
      try await withVirtualTime(mode) { try await body($0) }
      return nil
    } catch {
      return error as? VirtualTimeError
    }
  }

  @Test func `a body that awaits something that never happens fails at once`() async {
    let error = await virtualTimeError { _ in
      let (stream, continuation) = AsyncStream<Void>.makeStream()
      for await _ in stream {}
      withExtendedLifetime(continuation) {}
    }
    #expect(error?.code == .stuck)
    #expect(error?.pendingSleeps == [])
    #expect(error?.description.hasPrefix("nothing can run at 0.0 seconds: nothing sleeps") == true)
    #expect(error?.description.contains("wrap the wait in withRealWork") == true)
    #expect(error?.description.contains("left behind") == false)
  }

  @Test func `the error lists the sleepers if the test does not advance the time`() async {
    let error = await virtualTimeError(in: .manual) { time in
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask(name: "uploads") { try await time.clock.sleep(for: .seconds(90)) }
        group.addTask { try await time.clock.sleep(for: .seconds(60)) }
      }
    }
    #expect(error?.pendingSleeps.map(\.deadline.offset) == [.seconds(60), .seconds(90)])
    #expect(
      error?.description == """
        nothing can run at 0.0 seconds: 2 sleepers, due in 60.0 seconds, in 90.0 seconds (task \
        "uploads"), and the virtual time is manual. Call advance(by:), or make the virtual time \
        automatic
        """
    )
  }

  @Test func `a body that ignores its cancellation is left behind, and the error says so`() async {
    let late = Mutex<CheckedContinuation<Void, Never>?>(nil)
    let ended = AsyncStream<Void>.makeStream()
    let error = await virtualTimeError { _ in
      await withCheckedContinuation { continuation in late.withLock { $0 = continuation } }
      ended.continuation.finish()
    }
    #expect(error?.code == .stuck)
    #expect(error?.description.contains("was left behind") == true)
    // The body can still end: its jobs now run on the global executor.
    late.withLock { $0.take() }?.resume()
    for await _ in ended.stream {}
  }

  @Test
  func `tasks that still sleep when the body returns are reported, and their sleeps are cancelled`()
    async throws
  {
    let ended = AsyncStream<Bool>.makeStream()
    let error = await virtualTimeError { time in
      Task(name: "poller", executorPreference: time.executor) {
        let result = await Task(executorPreference: time.executor) {
          try await time.clock.sleep(for: .seconds(60))
        }.result
        ended.continuation.yield((try? result.get()) == nil)
        ended.continuation.finish()
      }
      try await time.clock.waitForSleepers()
    }
    #expect(error?.code == .sleepersLeft)
    #expect(error?.pendingSleeps.map(\.deadline.offset) == [.seconds(60)])
    #expect(
      error?.description.hasPrefix("the body has returned at 0.0 seconds, but left 1 sleeper")
        == true
    )
    for await wasCancelled in ended.stream { #expect(wasCancelled) }
  }

  @Test func `if the body throws while tasks sleep, the error of the body is thrown`() async {
    struct Boom: Error {}
    await #expect(throws: Boom.self) {
      try await withVirtualTime { time in
        Task(executorPreference: time.executor) { try await time.clock.sleep(for: .seconds(60)) }
        await time.advance(by: .zero)
        throw Boom()
      }
    }
  }

  @Test func `a test case that ignores its cancellation is reported at once, and then awaited`()
    async throws
  {
    let gate = Gate()
    let trace = Trace()
    try await withKnownIssue {
      let test = try #require(Test.current)
      let trait: VirtualTimeTrait = .virtualTime
      try await trait.provideScope(for: test, testCase: Test.Case.current) {
        // Detached, so that the virtual time does not see the wait.
        await Task.detached { await gate.pass() }.value
        trace.note("ended")
      }
    } matching: { issue in
      // Only now, after the report, can the test case end.
      gate.open()
      let error = issue.error as? VirtualTimeError
      return error?.description.hasSuffix("keeps waiting for it") == true && trace.entries.isEmpty
    }
    #expect(trace.entries == ["ended"])
  }
}
