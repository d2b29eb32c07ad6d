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
    interruptions: Int = 0,
    expiry: Double? = nil
  ) -> ClaimedTask {
    let record = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload([], format: .json),
      createdDate: .seconds(0),
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      expiryDate: expiry.map { .seconds($0) },
      state: .running,
      availableDate: .seconds(0),
      retryCount: retryCount,
      interruptionCount: interruptions
    )
    return ClaimedTask(record: record, lease: Lease(id: .numbered(1), token: 1))
  }

  /// The verdict as one line of text.
  private func verdict(
    _ end: AttemptEnd,
    on task: ClaimedTask,
    _ configuration: TaskQueueConfiguration? = nil,
    cutoff: Date? = nil,
    command: TaskCommand? = nil
  ) -> String {
    let judge = AttemptJudge(
      configuration
        ?? TaskQueueConfiguration(backoff: .exponential(from: .seconds(10), multiplier: 2))
    )
    var generator = SplitMix64(seed: 1)
    let verdict = judge.verdict(
      on: task.record,
      after: end,
      command: command,
      at: AttemptJudge.Moment(now: now, cutoff: cutoff),
      using: &generator
    )
    let settlement = judge.settlement(verdict, of: task, now: now)
    return switch settlement.change {
    case .succeed(_, let date, let retains):
      "succeeded at \(date.timeIntervalSince1970), \(retains ? "kept" : "gone")"
    case .retry(_, let date, let count, let failure, _):
      "retry \(count) in \(date.timeIntervalSince(now)): \(failure?.reason ?? "-")"
    case .abandon(_, let failure, let retains):
      "abandoned: \(failure.reason), \(retains ? "kept" : "gone")"
    case .release: "released"
    case .park(_, let failure): "parked: \(failure.reason)"
    case .cancel(_, let date, let retains):
      "cancelled at \(date.timeIntervalSince1970), \(retains ? "kept" : "gone")"
    case .pause: "paused"
    case .restart(_, let date, _): "restarted at \(date.timeIntervalSince1970)"
    case .update: "updated"
    case .reschedule(_, let date, _): "rescheduled to \(date.timeIntervalSince1970)"
    case .suspend(_, let date, _, _): "suspended until \(date.timeIntervalSince1970)"
    case .insert, .unpark, .prune, .rebase, .extend, .resume, .remove, .remember, .complete,
      .setValue:
      "nonsense"
    }
  }

  @Test(arguments: [
    (0, "retry 1 in 10.0: no"), (1, "retry 2 in 20.0: no"), (3, "retry 4 in 80.0: no"),
    (9, "retry 10 in 5120.0: no"), (10, "abandoned: no, kept"),
  ])
  func `a failure is retried with growing delays, then abandoned`(retryCount: Int, verdict: String)
  {
    #expect(self.verdict(.threw(Refusal("no")), on: task(retryCount: retryCount)) == verdict)
  }

  @Test func `a task with unlimited retries is retried up to the greatest count`() {
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
  func `an error's own retry decision applies`(decision: RetryDecision, verdict: String) {
    let found = self.verdict(.threw(Decided(retryDecision: decision)), on: task())
    #expect(found.hasPrefix(verdict))
  }

  @Test func `without backoff, the retry is due at once`() {
    #expect(
      verdict(.threw(Refusal("no")), on: task(usesBackoff: false)) == "retry 1 in 0.0: no"
    )
  }

  @Test func `a retry during a pass is due after the pass`() {
    let found = verdict(.threw(Refusal("no")), on: task(usesBackoff: false), cutoff: now)
    #expect(found == "retry 1 in \(now.nextStorable.timeIntervalSince(now)): no")
    #expect(now.nextStorable > now)
  }

  @Test func `a snooze neither counts as a retry nor records an error`() {
    let found = verdict(.threw(TaskSnoozed(for: .seconds(9))), on: task(retryCount: 4))
    #expect(found == "retry 4 in 9.0: -")
  }

  @Test func `an ended task is retained as configured`() {
    #expect(verdict(.returned(()), on: task()) == "succeeded at 1000.0, gone")
    #expect(
      verdict(.returned(()), on: task(), TaskQueueConfiguration(succeededRetention: .forever))
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

  @Test
  func `a cancelled attempt releases its task, and an undecodable payload parks it`() {
    #expect(verdict(.cancelled, on: task()) == "released")
    #expect(verdict(.undecodable(Refusal("torn")), on: task()) == "parked: torn")
  }

  @Test(arguments: [(2, false), (3, true), (100, true)])
  func `a task that interrupted its process too often in a row is abandoned`(
    interruptions: Int,
    isAbandoned: Bool
  ) {
    let judge = AttemptJudge(TaskQueueConfiguration(maxInterruptions: 2))
    let failure = judge.failureInsteadOfAttempt(
      task(interruptions: interruptions).record,
      now: now
    )
    #expect((failure != nil) == isAbandoned)
  }

  @Test func `every backoff leads to a date that can be stored`() {
    let endless = TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(1), multiplier: 1e300)
    )
    let found = verdict(.threw(Refusal("no")), on: task(retryCount: 9), endless)
    #expect(found.hasPrefix("retry 10 in "))
    #expect(!found.contains("inf") && !found.contains("nan"))
  }

  @Test func `an expired task is abandoned instead of attempted`() {
    let judge = AttemptJudge(TaskQueueConfiguration())
    let early = judge.failureInsteadOfAttempt(task(expiry: 1001).record, now: now)
    #expect(early == nil)
    let late = judge.failureInsteadOfAttempt(task(expiry: 1000).record, now: now)
    #expect(late?.reason == "it expired before it was done")
  }

  @Test func `a task is abandoned if its backoff would end after its expiry`() {
    #expect(
      verdict(.threw(Refusal("no")), on: task(expiry: 1010)) == "abandoned: no, kept"
    )
    #expect(
      verdict(.threw(Refusal("no")), on: task(expiry: 1011)) == "retry 1 in 10.0: no"
    )
  }

  @Test
  func `a queue that prohibits backoff retries at once, except after errors with their own delay`()
  {
    let configuration = TaskQueueConfiguration(prohibitsBackoff: true)
    #expect(
      verdict(.threw(Refusal("no")), on: task(), configuration) == "retry 1 in 0.0: no"
    )
    let later = Decided(retryDecision: .retry(after: .seconds(3)))
    #expect(verdict(.threw(later), on: task(), configuration).hasPrefix("retry 1 in 3.0"))
  }

  @Test(arguments: [
    (TaskCommand.cancel, "cancelled at 1000.0, gone"), (.pause, "paused"),
    (.restart(forgets: false), "restarted at 1000.0"), (.remove, "cancelled at 1000.0, gone"),
    (.release, "released"),
  ])
  func `a command for the task is carried out when the handler throws`(
    command: TaskCommand,
    expected: String
  ) {
    for end in [AttemptEnd.cancelled, .threw(Refusal("no")), .threw(TaskSnoozed(for: .zero))] {
      #expect(verdict(end, on: task(), command: command) == expected)
    }
    let done = verdict(.returned(()), on: task(), command: command)
    #expect(done == "succeeded at 1000.0, gone")
  }

  @Test func `the reason is limited in bytes, and cut between characters`() {
    let long = String(repeating: "é", count: 5_000)
    let found = verdict(.threw(TaskAbandoned(long)), on: task())
    let reason = found.dropFirst("abandoned: ".count).prefix { $0 != "," }
    #expect(reason.utf8.count <= AttemptJudge.longestReason)
    #expect(reason.dropLast().allSatisfy { $0 == "é" })
    #expect(reason.last == "…")
  }

  @Test func `the configuration can replace the stored text of an error`() {
    let configuration = TaskQueueConfiguration(errorText: { "\(type(of: $0))" })
    #expect(
      verdict(.threw(TaskAbandoned("secret")), on: task(), configuration)
        == "abandoned: TaskAbandoned, kept"
    )
  }
}
