import Dispatch
import SteadfastTesting
import Testing

/// Work that escapes a virtual time.
@Suite(.timeLimit(.minutes(5))) struct EscapeTests {
  private let gate = Gate()

  /// A way in which work escapes a virtual time.
  enum WayOut: CaseIterable, Sendable {
    case detachedTask, unstructuredTask, foreignExecutor, callback

    /// Escapes from the virtual time, waits until `gate` is open, and then returns the time.
    func escapedTime(of clock: VirtualClock, after gate: Gate) async -> Duration {
      let wait: @Sendable () async -> Duration = {
        await gate.pass()
        return clock.now.offset
      }
      switch self {
      // Not a child task, which would stay in the virtual time.
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
  func `the time advances while outside work runs`(wayOut: WayOut) async throws {
    try await withVirtualTime { time in
      let back = Gate()
      async let openLater: Void = {
        try await time.clock.sleep(for: .seconds(3_600))
        await time.withRealWork {
          gate.open()
          await back.pass()
        }
      }()
      #expect(await wayOut.escapedTime(of: time.clock, after: gate) == .seconds(3_600))
      back.open()
      try await openLater
    }
  }

  @Test(arguments: WayOut.allCases)
  func `the time stands still while outside work runs in withRealWork`(wayOut: WayOut)
    async throws
  {
    try await withVirtualTime { time in
      async let later: Void = time.clock.sleep(for: .seconds(3_600))
      gate.open()
      let instant = await time.withRealWork {
        await wayOut.escapedTime(of: time.clock, after: gate)
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
      let instant = await RealWork.perform { await wayOut.escapedTime(of: time.clock, after: gate) }
      #expect(instant == .zero)
      try await later
    }
  }

  @Test(arguments: WayOut.allCases)
  func `a body that waits only for outside work is stuck`(
    wayOut: WayOut
  ) async throws {
    let gate = gate
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { time in
        _ = await wayOut.escapedTime(of: time.clock, after: gate)
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

  /// Keeps the main actor busy until the time has advanced, and returns the time.
  @MainActor private static func spinOnMainActor(untilAdvanceOf clock: VirtualClock) -> Duration {
    while clock.now.offset == .zero {}
    return clock.now.offset
  }

  @Test func `virtual time stands still while a body works on the main actor`() async throws {
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

  @Test func `a sleep on another clock is outside work`() async throws {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { _ in try await ContinuousClock().sleep(for: .seconds(3_600)) }
    }
    #expect(error?.code == .stuck)
  }
}
