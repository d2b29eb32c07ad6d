import SteadfastTesting
import Testing

@Suite(.virtualTime, .timeLimit(.minutes(5))) struct VirtualTimeTraitTests {
  private let time: VirtualTime

  init() throws { time = try #require(VirtualTime.current) }

  @Test(arguments: 0..<100) func `each test case has its own virtual time`(days: Int) async throws {
    #expect(time.clock.now.offset == .zero)
    try await time.clock.sleep(for: .seconds(86_400 * days))
    #expect(time.clock.now.offset == .seconds(86_400 * days))
  }

  @Test func `a virtual year does not count towards the time limit of the test`() async throws {
    for _ in 0..<365 { try await time.clock.sleep(for: .seconds(86_400)) }
    #expect(time.clock.now.offset == .seconds(365 * 86_400))
  }

  @Test func `a child task belongs to the test that started it`() async throws {
    let name = Test.current?.name
    try await withThrowingTaskGroup(of: String?.self) { group in
      for seconds in 0..<10 {
        group.addTask {
          try await time.clock.sleep(for: .seconds(seconds))
          return Test.current?.name
        }
      }
      for try await child in group { #expect(child == name) }
    }
  }

  @Test func `a confirmation in virtual time counts its calls`() async throws {
    try await confirmation(expectedCount: 5) { confirm in
      for _ in 0..<5 {
        async let slept: Void = time.clock.sleep(for: .seconds(1))
        try await slept
        confirm()
      }
    }
  }

  @Test(.virtualTime(.manual)) func `a test's own trait overrides its suite's`() async throws {
    async let slept: Void = time.clock.sleep(for: .seconds(60))
    await time.advance(by: .seconds(59))
    #expect(time.clock.pendingSleeps.count == 1)
    await time.advance(by: .seconds(1))
    try await slept
  }

  @MainActor @Test func `sleeps of a test on the main actor end in the order of their deadlines`()
    async throws
  {
    let trace = Trace()
    let sleeps = [3, 1, 2].map { seconds in
      // An app starts work like this; the work stays on the main actor.
      Task {
        try await time.clock.sleep(for: .seconds(seconds))
        trace.note("\(seconds)")
      }
    }
    for sleep in sleeps { try await sleep.value }
    #expect(trace.entries == ["1", "2", "3"])
    #expect(time.clock.now.offset == .seconds(3))
  }
}
