import SteadfastQueue
import Testing

@testable import SteadfastTesting

@Suite(.virtualTime) struct HangDetectorTests {
  private let trial = RequirementCheck(reopens: false, randomCases: 0, seed: 0)

  @Test func `on a busy machine, the detector waits for a call that needs several executor turns`()
    async throws
  {
    let answer = try await HangDetector(.seconds(60), clock: BusyClock()).wait(for: trial) {
      for _ in 0..<20 { await waitOneTurn() }
      return 7
    }
    #expect(answer == 7)
  }

  @Test func `the detector keeps waiting while at least one call returns within each limit`()
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

/// A clock on a machine so busy that each sleep overruns its deadline: a sleep lasts one turn of
/// the executor.
private struct BusyClock: Clock {
  typealias Instant = ContinuousClock.Instant

  var now: Instant { ContinuousClock.now }
  var minimumResolution: Duration { .zero }

  func sleep(until deadline: Instant, tolerance: Duration?) async throws {
    await waitOneTurn()
    try Task.checkCancellation()
  }
}

/// Returns after another task has run, which takes one turn of the executor.
private func waitOneTurn() async { await Task {}.value }
