import Dispatch
import SteadfastTesting
import Testing

/// Tests of a virtual time whose body waits for code that runs outside of it.
@Suite(.timeLimit(.minutes(5))) struct EscapeTests {
  private let gate = Gate()

  /// A way to run code outside of the virtual time.
  enum WayOut: CaseIterable, Sendable {
    case detachedTask, unstructuredTask, foreignExecutor, callback

    /// Runs code outside of the virtual time that waits for `gate` and then reads the clock.
    func readTimeOutside(of clock: VirtualClock, after gate: Gate) async -> Duration {
      let wait: @Sendable () async -> Duration = {
        await gate.pass()
        return clock.now.offset
      }
      switch self {
      // A child task would run in the virtual time.
      case .detachedTask: return await Task.detached { await wait() }.value
      case .unstructuredTask: return await Task { await wait() }.value
      case .foreignExecutor: return await ForeignActor().perform(wait)
      case .callback:
        return await withCheckedContinuation { continuation in
          // A callback does not run in a task, so the task that it starts has no parent.
          DispatchQueue.global().async { Task { continuation.resume(returning: await wait()) } }
        }
      }
    }
  }

  @Test(arguments: WayOut.allCases)
  func `the time advances while code outside of the virtual time runs`(wayOut: WayOut) async throws
  {
    try await withVirtualTime { time in
      let back = Gate()
      async let openLater: Void = {
        try await time.clock.sleep(for: .seconds(3_600))
        await time.withRealWork {
          gate.open()
          await back.pass()
        }
      }()
      #expect(await wayOut.readTimeOutside(of: time.clock, after: gate) == .seconds(3_600))
      back.open()
      try await openLater
    }
  }

  @Test(arguments: WayOut.allCases)
  func `the time stands still while code outside of the virtual time runs in withRealWork`(
    wayOut: WayOut
  )
    async throws
  {
    try await withVirtualTime { time in
      async let later: Void = time.clock.sleep(for: .seconds(3_600))
      gate.open()
      let instant = await time.withRealWork {
        await wayOut.readTimeOutside(of: time.clock, after: gate)
      }
      #expect(instant == .zero)
      try await later
    }
  }

  @Test(arguments: WayOut.allCases)
  func `the time stands still during a store's real work`(wayOut: WayOut) async throws {
    try await withVirtualTime { time in
      async let later: Void = time.clock.sleep(for: .seconds(3_600))
      gate.open()
      let instant = await RealWork.perform {
        await wayOut.readTimeOutside(of: time.clock, after: gate)
      }
      #expect(instant == .zero)
      try await later
    }
  }

  @Test(arguments: WayOut.allCases)
  func `a body that waits only for code outside of the virtual time fails`(
    wayOut: WayOut
  ) async throws {
    let gate = gate
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        _ = await wayOut.readTimeOutside(of: time.clock, after: gate)
      }
    }
    #expect(error?.code == .stuck)
    gate.open()
  }

  @Test func `the time advances while the main actor is busy`() async throws {
    try await withVirtualTime { time in
      async let later: Void = time.clock.sleep(for: .seconds(3_600))
      #expect(await Self.spinOnMainActor(untilAdvanceOf: time.clock) == .seconds(3_600))
      try await later
    }
  }

  /// Keeps the main actor busy until the clock has advanced, and returns the clock's time.
  @MainActor private static func spinOnMainActor(untilAdvanceOf clock: VirtualClock) -> Duration {
    while clock.now.offset == .zero {}
    return clock.now.offset
  }

  @Test func `the time stands still while the body runs on the main actor`() async throws {
    let trace = Trace()
    try await withVirtualTime { @MainActor time in
      // An app starts work like this; the work stays on the main actor.
      let task = Task { @MainActor in
        try await time.clock.sleep(for: .seconds(2))
        trace.note("\(time.clock.now)")
      }
      try await time.clock.sleep(for: .seconds(3))
      trace.note("\(time.clock.now)")
      try await task.value
    }
    #expect(trace.entries == ["2.0 seconds", "3.0 seconds"])
  }

  @Test func `a body that sleeps on another clock fails`() async throws {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { _ in try await ContinuousClock().sleep(for: .seconds(3_600)) }
    }
    #expect(error?.code == .stuck)
  }
}
