import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

private struct Decided: RetryAwareError {
  let retryDecision: RetryDecision
}

@Suite struct AttemptJudgeTests {
  private let now = Date.seconds(1000)

  private func task(
    retryCount: Int = 0,
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    interruptions: Int = 0
  ) -> ClaimedTask {
    let record = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload([], format: .json),
      createdDate: .seconds(0),
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      state: .running,
      availableDate: .seconds(0),
      retryCount: retryCount,
      interruptionCount: interruptions
    )
    return ClaimedTask(record: record, lease: Lease(id: .numbered(1), token: 1))
  }

  /// The verdict in a line.
  private func verdict(
    _ end: AttemptEnd,
    on task: ClaimedTask,
    _ configuration: TaskQueueConfiguration? = nil,
    horizon: Date? = nil
  ) -> String {
    var judge = AttemptJudge(
      configuration
        ?? TaskQueueConfiguration(backoff: .exponential(from: .seconds(10), multiplier: 2))
    )
    let settlement = judge.settlement(of: task, after: end, now: now, horizon: horizon)
    return switch settlement.change {
    case .succeed(_, let date, let keeps):
      "succeeded at \(date.timeIntervalSince1970), \(keeps ? "kept" : "gone")"
    case .retry(_, let date, let count, let failure):
      "retry \(count) in \(date.timeIntervalSince(now)): \(failure?.reason ?? "-")"
    case .abandon(_, let failure, let keeps):
      "abandoned: \(failure.reason), \(keeps ? "kept" : "gone")"
    case .release: "released"
    case .park(_, let failure): "parked: \(failure.reason)"
    case .insert, .unpark, .prune, .rebase: "nonsense"
    }
  }

  @Test(arguments: [
    (0, "retry 1 in 10.0: no"), (1, "retry 2 in 20.0: no"), (3, "retry 4 in 80.0: no"),
    (9, "retry 10 in 5120.0: no"), (10, "abandoned: no, kept"),
  ])
  func `a failure is retried later and later, then abandoned`(retryCount: Int, verdict: String) {
    #expect(self.verdict(.threw(Refusal("no")), on: task(retryCount: retryCount)) == verdict)
  }

  @Test func `a task that is always retried has no last attempt, up to the greatest count`() {
    let verdict = verdict(
      .threw(Refusal("no")),
      on: task(retryCount: .max - 1, maxRetries: .alwaysRetry),
      TaskQueueConfiguration()
    )
    #expect(verdict.hasPrefix("retry \(Int.max) in "))
  }

  @Test(arguments: [
    (RetryDecision.stop, "abandoned: "), (.retry, "retry 1 in 10.0: "),
    (.retry(after: .seconds(3)), "retry 1 in 3.0: "),
    (.retry(after: .seconds(-3)), "retry 1 in 0.0: "),
  ])
  func `an error's own decision counts`(decision: RetryDecision, verdict: String) {
    let found = self.verdict(.threw(Decided(retryDecision: decision)), on: task())
    #expect(found.hasPrefix(verdict))
  }

  @Test func `without backoff the retry is due at once`() {
    #expect(
      verdict(.threw(Refusal("no")), on: task(usesBackoff: false)) == "retry 1 in 0.0: no"
    )
  }

  @Test func `in a pass no retry is due before its end`() {
    let found = verdict(.threw(Refusal("no")), on: task(usesBackoff: false), horizon: now)
    #expect(found == "retry 1 in \(now.nextStorable.timeIntervalSince(now)): no")
    #expect(now.nextStorable > now)
  }

  @Test func `a snooze neither counts nor notes an error`() {
    let found = verdict(.threw(TaskSnoozed(for: .seconds(9))), on: task(retryCount: 4))
    #expect(found == "retry 4 in 9.0: -")
  }

  @Test func `what has ended is kept as the configuration says`() {
    #expect(verdict(.returned, on: task()) == "succeeded at 1000.0, gone")
    #expect(
      verdict(.returned, on: task(), TaskQueueConfiguration(succeededRetention: .forever))
        == "succeeded at 1000.0, kept"
    )
    #expect(
      verdict(
        .threw(TaskAbandoned("no")),
        on: task(),
        TaskQueueConfiguration(abandonedRetention: .none)
      ) == "abandoned: no, gone"
    )
  }

  @Test func `a cancelled attempt is put back, an undecodable payload put aside`() {
    #expect(verdict(.cancelled, on: task()) == "released")
    #expect(verdict(.undecodable(Refusal("torn")), on: task()) == "parked: torn")
  }

  @Test(arguments: [(2, false), (3, true), (100, true)])
  func `a task that interrupted its process too often in a row is given up`(
    interruptions: Int,
    isGivenUp: Bool
  ) {
    let judge = AttemptJudge(TaskQueueConfiguration(maxInterruptions: 2))
    let settlement = judge.settlementInsteadOfAttempt(
      task(interruptions: interruptions),
      now: now
    )
    #expect((settlement != nil) == isGivenUp)
  }

  @Test func `no backoff makes a date that can't be stored`() {
    let endless = TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(1), multiplier: 1e300)
    )
    var judge = AttemptJudge(endless)
    let settlement = judge.settlement(
      of: task(retryCount: 9),
      after: .threw(Refusal()),
      now: now
    )
    guard case .retry(_, let date, _, _) = settlement.change else {
      return #expect(Bool(false), "\(settlement.change)")
    }
    #expect(date.timeIntervalSince1970.isFinite)
  }
}
