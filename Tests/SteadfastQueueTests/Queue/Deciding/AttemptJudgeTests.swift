import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

private struct Decided: RetryAwareError {
  let retryDecision: RetryDecision
}

@Suite struct AttemptJudgeTests {
  private let now = Date.seconds(1000)

  private func makeTask(
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
    after end: AttemptEnd,
    on task: ClaimedTask,
    configuration: TaskQueueConfiguration? = nil,
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
    case .end(_, let end):
      (end.failure.map { "abandoned: \($0.reason)" }
        ?? "\(end.state) at \(end.date.timeIntervalSince1970)")
        + ", \(end.retains ? "kept" : "gone")"
    case .move(_, let move): description(of: move)
    case .update: "updated"
    case .memory(.suspend(_, let date, _, _)): "suspended until \(date.timeIntervalSince1970)"
    case .insert, .memory, .broad, .extend, .command, .remove, .setValue: "nonsense"
    }
  }

  private func description(of move: TaskMove) -> String {
    let date = move.availableDate ?? .distantPast
    return switch move.kind {
    case .retry:
      "retry \(move.retryCount ?? -1) in \(date.timeIntervalSince(now)): "
        + (move.failure?.reason ?? "-")
    case .release: "released"
    case .park: "parked: \(move.failure?.reason ?? "-")"
    case .pause: "paused"
    case .resume: "nonsense"
    case .restart: "restarted at \(date.timeIntervalSince1970)"
    case .reschedule: "rescheduled to \(date.timeIntervalSince1970)"
    }
  }

  @Test(arguments: [
    (0, "retry 1 in 10.0: no"), (1, "retry 2 in 20.0: no"), (3, "retry 4 in 80.0: no"),
    (9, "retry 10 in 5120.0: no"), (10, "abandoned: no, kept"),
  ])
  func `a failing task is retried with growing delays, and then abandoned`(
    retryCount: Int,
    verdict: String
  ) {
    let found = self.verdict(after: .threw(Refusal("no")), on: makeTask(retryCount: retryCount))
    #expect(found == verdict)
  }

  @Test func `a task with unlimited retries is retried up to the greatest count`() {
    let verdict = verdict(
      after: .threw(Refusal("no")),
      on: makeTask(retryCount: .max - 1, maxRetries: .alwaysRetry),
      configuration: TaskQueueConfiguration()
    )
    #expect(verdict.hasPrefix("retry \(Int.max) in "))
  }

  @Test(arguments: [
    (RetryDecision.stop, "abandoned: "), (.retry, "retry 1 in 10.0: "),
    (.retry(after: .seconds(3)), "retry 1 in 3.0: "),
    (.retry(after: .seconds(-3)), "retry 1 in 0.0: "),
  ])
  func `the retry decision of a RetryAwareError applies`(decision: RetryDecision, verdict: String) {
    let found = self.verdict(after: .threw(Decided(retryDecision: decision)), on: makeTask())
    #expect(found.hasPrefix(verdict))
  }

  @Test func `without backoff, the retry is due at once`() {
    let found = verdict(after: .threw(Refusal("no")), on: makeTask(usesBackoff: false))
    #expect(found == "retry 1 in 0.0: no")
  }

  @Test func `a retry decided during a pass is due after the pass`() {
    let found = verdict(after: .threw(Refusal("no")), on: makeTask(usesBackoff: false), cutoff: now)
    #expect(found == "retry 1 in \(now.nextStorable.timeIntervalSince(now)): no")
    #expect(now.nextStorable > now)
  }

  @Test func `a snooze neither counts as a retry nor records an error`() {
    let found = verdict(after: .threw(TaskSnoozed(for: .seconds(9))), on: makeTask(retryCount: 4))
    #expect(found == "retry 4 in 9.0: -")
  }

  @Test func `an ended task is retained as configured`() {
    #expect(verdict(after: .returned(()), on: makeTask()) == "succeeded at 1000.0, gone")
    #expect(
      verdict(
        after: .returned(()),
        on: makeTask(),
        configuration: TaskQueueConfiguration(succeededRetention: .forever)
      ) == "succeeded at 1000.0, kept"
    )
    #expect(
      verdict(
        after: .threw(TaskAbandoned("no")),
        on: makeTask(),
        configuration: TaskQueueConfiguration(abandonedRetention: .none)
      ) == "abandoned: no, gone"
    )
  }

  @Test
  func `a cancelled attempt releases its task, and an undecodable payload parks it`() {
    #expect(verdict(after: .cancelled, on: makeTask()) == "released")
    #expect(verdict(after: .undecodable(Refusal("torn")), on: makeTask()) == "parked: torn")
  }

  @Test(arguments: [(2, false), (3, true), (100, true)])
  func `a task that interrupted its process too often in a row is abandoned`(
    interruptions: Int,
    isAbandoned: Bool
  ) {
    let judge = AttemptJudge(TaskQueueConfiguration(maxInterruptions: 2))
    let failure = judge.failurePreventingAttempt(
      of: makeTask(interruptions: interruptions).record,
      now: now
    )
    #expect((failure != nil) == isAbandoned)
  }

  @Test func `every backoff leads to a date that can be stored`() {
    let endless = TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(1), multiplier: 1e300)
    )
    let found = verdict(
      after: .threw(Refusal("no")),
      on: makeTask(retryCount: 9),
      configuration: endless
    )
    #expect(found.hasPrefix("retry 10 in "))
    #expect(!found.contains("inf") && !found.contains("nan"))
  }

  @Test func `an expired task is abandoned instead of attempted`() {
    let judge = AttemptJudge(TaskQueueConfiguration())
    let early = judge.failurePreventingAttempt(of: makeTask(expiry: 1001).record, now: now)
    #expect(early == nil)
    let late = judge.failurePreventingAttempt(of: makeTask(expiry: 1000).record, now: now)
    #expect(late?.reason == "the task expired before it was done")
  }

  @Test func `a task is abandoned if its backoff would end after its expiry`() {
    #expect(
      verdict(after: .threw(Refusal("no")), on: makeTask(expiry: 1010)) == "abandoned: no, kept"
    )
    #expect(
      verdict(after: .threw(Refusal("no")), on: makeTask(expiry: 1011)) == "retry 1 in 10.0: no"
    )
  }

  @Test
  func `a queue that prohibits backoff retries at once, except after errors with their own delay`()
  {
    let configuration = TaskQueueConfiguration(prohibitsBackoff: true)
    let atOnce = verdict(after: .threw(Refusal("no")), on: makeTask(), configuration: configuration)
    #expect(atOnce == "retry 1 in 0.0: no")
    let later = Decided(retryDecision: .retry(after: .seconds(3)))
    let found = verdict(after: .threw(later), on: makeTask(), configuration: configuration)
    #expect(found.hasPrefix("retry 1 in 3.0"))
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
      #expect(verdict(after: end, on: makeTask(), command: command) == expected)
    }
    let done = verdict(after: .returned(()), on: makeTask(), command: command)
    #expect(done == "succeeded at 1000.0, gone")
  }

  @Test func `the reason of a failure is limited in bytes, and cut between characters`() {
    let long = String(repeating: "é", count: 5_000)
    let found = verdict(after: .threw(TaskAbandoned(long)), on: makeTask())
    let reason = found.dropFirst("abandoned: ".count).prefix { $0 != "," }
    #expect(reason.utf8.count <= AttemptJudge.longestReason)
    #expect(reason.dropLast().allSatisfy { $0 == "é" })
    #expect(reason.last == "…")
  }

  @Test func `the configuration can replace the stored description of an error`() {
    let configuration = TaskQueueConfiguration(errorText: { "\(type(of: $0))" })
    #expect(
      verdict(after: .threw(TaskAbandoned("secret")), on: makeTask(), configuration: configuration)
        == "abandoned: TaskAbandoned, kept"
    )
  }
}
