import SteadfastQueue
import Testing

@testable import SteadfastTesting

@Suite(.virtualTime) struct HangDetectorTests {
  private let trial = RequirementCheck(reopens: false, randomCases: 0, seed: 0)

  @Test func `a call that needs several turns of a busy machine is waited for`() async throws {
    let answer = try await HangDetector(.seconds(60), clock: BusyClock()).wait(for: trial) {
      for _ in 0..<20 { await turn() }
      return 7
    }
    #expect(answer == 7)
  }

  @Test func `calls are waited for as long as one returns within the limit`() async throws {
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

  @Test func `when none returns any more the wait ends after the limit`() async throws {
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

/// A clock on a machine so busy that any time has passed when it is looked at again: each sleep
/// takes one turn of the executor.
private struct BusyClock: Clock {
  typealias Instant = ContinuousClock.Instant

  var now: Instant { ContinuousClock.now }
  var minimumResolution: Duration { .zero }

  func sleep(until deadline: Instant, tolerance: Duration?) async throws {
    await turn()
    try Task.checkCancellation()
  }
}

/// Goes on after another task has had its turn: a task of its own, which needs one to end.
private func turn() async { await Task {}.value }
