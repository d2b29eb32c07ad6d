import Dispatch
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct VirtualTimeDriverTests {
  @Test func `a cancelled caller does not wait for a task that never ends`() async throws {
    let begun = Gate()
    let stop = Trace()
    let caller = Task(executorPreference: ThreadForEachJob()) {
      try await withVirtualTime { time in
        _ = Task(executorPreference: time.executor) {
          while stop.entries.isEmpty {
            begun.open()
            await Task.yield()
          }
        }
      }
    }
    await begun.pass()
    caller.cancel()
    _ = try await caller.value
    stop.note("stop")
  }

  @Test func `jobs that are ready when the body returns still run`() async throws {
    let trace = Trace()
    try await withVirtualTime { time in
      _ = Task(executorPreference: time.executor) {
        for _ in 0..<1_000 { await Task.yield() }
        trace.note("done")
      }
    }
    #expect(trace.entries == ["done"])
  }

  @Test
  func
    `of two sleepers with one deadline, the second wakes after the tasks that the first starts`()
    async throws
  {
    let trace = Trace()
    try await withVirtualTime { time in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for name in ["a", "b"] {
          group.addTask {
            try await time.clock.sleep(for: .seconds(1))
            trace.note(name)
            async let child: Void = trace.note("\(name)'s child")
            await child
          }
        }
        try await group.waitForAll()
      }
    }
    #expect(trace.entries == ["a", "a's child", "b", "b's child"])
  }

  /// The main actor runs the real work while the driver waits for the main actor's jobs.
  @Test
  func
    `the driver notices real work that starts and ends while the driver waits for the main actor`()
    async throws
  {
    let observer = DriverObserver()
    try await RealWork.observed(by: observer) {
      try await withVirtualTime { time in
        // A child task would run on the virtual time's executor first.
        let work = Task { @MainActor in
          observer.waitForRealWork()
          await time.withRealWork {}
          for _ in 0..<12 { await Task.yield() }
        }
        await work.value
      }
    }
  }

  @Test
  func `the driver waits for real work that starts while the driver waits for the main actor`()
    async throws
  {
    for _ in 0..<50 {
      try await withVirtualTime { time in
        // A child task would run on the virtual time's executor first.
        let work = Task { @MainActor in
          await time.withRealWork {
            await withCheckedContinuation { continuation in
              DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(2)) {
                continuation.resume()
              }
            }
          }
        }
        await work.value
      }
    }
  }
}

/// An observer of the real work of a virtual time's driver.
///
/// In these tests, the driver's first real work is to wait for the main actor.
private final class DriverObserver: RealWorkObserver {
  private let began = DispatchSemaphore(value: 0)

  /// Blocks the calling thread until the driver waits for the main actor.
  func waitForRealWork() { began.wait() }

  func realWorkBegan() { began.signal() }

  func realWorkEnded() {}

  var taskExecutor: any TaskExecutor { globalConcurrentExecutor }

  var encodesPayloads: Bool { false }

  func errorForRun(of queue: String, on clock: any WallClock) -> (any Error)? { nil }

  func waitBegan(_ wait: KnownWait) -> UInt64 { 0 }

  func waitEnded(_ number: UInt64) {}

  func beginTurn() async {}

  func endTurn() async {}
}
