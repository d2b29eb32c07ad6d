import SteadfastTesting
import Testing

@Suite(.timeLimit(.minutes(5))) struct RealWorkTests {
  private struct Offline: Error {}
  private struct Handle: ~Copyable { let number: Int }

  @Test
  func `outside of a virtual time, RealWork.perform() passes on results and typed errors`()
    async
  {
    let handle = await RealWork.perform { Handle(number: 7) }
    #expect(handle.number == 7)
    do throws(Offline) {
      try await RealWork.perform { () async throws(Offline) in throw Offline() }
      Issue.record("the error was lost")
    } catch {}
  }

  @Test func `the time advances only after the last of several pieces of real work has ended`()
    async throws
  {
    try await withVirtualTime { time in
      async let later: Void = time.clock.sleep(for: .seconds(60))
      await time.withRealWork {
        await RealWork.perform { await realDelay() }
        await realDelay()
        #expect(time.clock.now.offset == .zero)
      }
      try await later
      #expect(time.clock.now.offset == .seconds(60))
    }
  }

  @Test func `the time advances after real work that throws`() async throws {
    try await withVirtualTime { time in
      await #expect(throws: Offline.self) { try await time.withRealWork { throw Offline() } }
      try await time.clock.sleep(for: .seconds(60))
    }
  }

  @Test func `advance() waits for real work that starts at the new time`() async throws {
    try await withVirtualTime(.manual) { time in
      let trace = Trace()
      async let worker: Void = {
        try await time.clock.sleep(for: .seconds(10))
        await RealWork.perform { await realDelay() }
        trace.note("written")
        try await time.clock.sleep(for: .seconds(10))
        trace.note("slept")
      }()
      await time.advance(by: .seconds(10))
      #expect(trace.entries == ["written"])
      await time.advance(by: .seconds(10))
      #expect(trace.entries == ["written", "slept"])
      try await worker
    }
  }
}
