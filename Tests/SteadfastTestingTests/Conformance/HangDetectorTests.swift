import SteadfastQueue
import Testing

@testable import SteadfastTesting

@Suite(.virtualTime) struct HangDetectorTests {
  private let trial = RequirementCheck(reopens: false, randomCases: 0, seed: 0)

  @Test
  func `on a busy machine, a call that waits for several other tasks does not count as hanging`()
    async throws
  {
    let answer = try await HangDetector(.seconds(60), clock: BusyClock()).wait(for: trial) {
      for _ in 0..<20 { await waitForAnotherTask() }
      return 7
    }
    #expect(answer == 7)
  }

  @Test func `the detector keeps waiting as long as each call returns within the limit`()
    async throws
  {
    let clock = try #require(VirtualTime.current?.clock)
    let start = clock.now
    try await HangDetector(.seconds(60)).wait(for: trial) { [trial] in
      for _ in 0..<10 {
        try await clock.sleep(for: .seconds(59))
        trial.recordStep("returned")
      }
    }
    #expect(start.duration(to: clock.now) == .seconds(590))
  }

  @Test func `the detector fails after the limit if no call returns`() async throws {
    let clock = try #require(VirtualTime.current?.clock)
    let start = clock.now
    await #expect(throws: ConformanceMismatch.self) {
      try await HangDetector(.seconds(60)).wait(for: trial) {
        try await clock.sleep(for: .seconds(3600))
      }
    }
    #expect(start.duration(to: clock.now) == .seconds(60))
  }
}

/// A clock whose sleeps last until another task has run, whatever their deadlines.
///
/// On a busy machine, short sleeps behave like this.
private struct BusyClock: Clock {
  typealias Instant = ContinuousClock.Instant

  var now: Instant { ContinuousClock.now }
  var minimumResolution: Duration { .zero }

  func sleep(until deadline: Instant, tolerance: Duration?) async throws {
    await waitForAnotherTask()
    try Task.checkCancellation()
  }
}

/// Suspends the caller until another task has run.
private func waitForAnotherTask() async { await Task {}.value }
