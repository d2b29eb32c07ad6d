import SteadfastQueue
import Testing

@testable import SteadfastTesting

@Suite(.virtualTime) struct HangDetectorTests {
  private let trial = RequirementCheck(reopens: false, randomCases: 0, seed: 0)

  @Test func `waits for a call that needs several executor turns on a busy machine`() async throws {
    let answer = try await HangDetector(.seconds(60), clock: BusyClock()).wait(for: trial) {
      for _ in 0..<20 { await turn() }
      return 7
    }
    #expect(answer == 7)
  }

  @Test func `waits as long as some call returns within each limit`() async throws {
    let clock = try #require(VirtualTime.current?.clock)
    let start = clock.now
    try await HangDetector(.seconds(60)).wait(for: trial) { [trial] in
      for _ in 0..<10 {
        try await clock.sleep(for: .seconds(59))
        trial.note("returned")
      }
    }
    #expect(start.duration(to: clock.now) == .seconds(590))
  }

  @Test func `fails after the limit if no call returns`() async throws {
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

/// A clock on a machine so busy that any deadline has passed by the next look: each sleep lasts
/// one turn of the executor.
private struct BusyClock: Clock {
  typealias Instant = ContinuousClock.Instant

  var now: Instant { ContinuousClock.now }
  var minimumResolution: Duration { .zero }

  func sleep(until deadline: Instant, tolerance: Duration?) async throws {
    await turn()
    try Task.checkCancellation()
  }
}

/// Returns after another task has run.
///
/// That task needs a turn of the executor to end.
private func turn() async { await Task {}.value }
