import Foundation
import SteadfastTesting
import TestSupport

@testable import SteadfastQueue

/// Records the requests, attempts and stored changes of a case's tasks.
///
/// Each new entry is compared with the earlier ones. If they contradict each other, a violation is
/// recorded.
struct ModelLedger: Sendable {
  enum End: Sendable {
    case returned, failed, abandoned, snoozed(Int), retryAfter(Int), cancelled, suspended
  }

  /// The attempt after the latest claim of a task.
  struct Attempt: Sendable {
    let began: VirtualClock.Instant
    var ended: VirtualClock.Instant?
    var end: End?
    /// Whether the handler's Swift task had been cancelled when the handler ended.
    var wasCancelled = false
    /// The date at which the task wakes, if the attempt suspended the task.
    var wakeDate: Date?
  }

  struct Entry: Sendable {
    var number = 0
    /// The name of the task's queue in the store.
    var queue = ""
    var lease: Lease?
    var claimed: TaskRecord?
    var attempt: Attempt?
    /// The number of acts that the handler has completed.
    ///
    /// An act is the work of one attempt.
    ///
    /// An act that suspended the task is performed again.
    var actCount = 0
    var attemptCount = 0
    var failureCount = 0
    /// The last token that the task handed out.
    var token: TaskToken?
    /// The last checkpoint that a handler saved.
    var checkpoint: Int?
    var outcomes: [TaskOutcome] = []
    var hasEnded = false
    var asked: Set<ModelOperation.Request> = []
    /// The task that superseded this one.
    var successor: TaskID?
    var expectedEvents: [String] = []
    var seenEvents: [String] = []
    /// Whether the task was changed by a change of its dependency, or woken by another queue.
    ///
    /// The event of such a change arrives with the events of the dependency or the other queue, so
    /// it may come after the event of a later change of this task.
    var wasChangedAlong = false
    /// The follower of the task's batch.
    var follower: TaskID?
    /// The indices of expected events that may be missing because the queue has ended.
    var omittableEvents: Set<Int> = []
  }

  /// The expected counts in a queue's statistics.
  struct Tally: Sendable, Equatable {
    var attempts = 0
    var succeeded = 0
    var failed = 0
    var abandoned = 0
    var snoozed = 0
  }

  let configuration: ModelCase
  var table = ReferenceTable()
  var entries: [TaskID: Entry] = [:]
  /// All tasks that were stored, in the order of their insertion.
  var known: [TaskID] = []
  var specifications: [Int: Specification] = [:]
  /// The expected counts of each queue, by the queue's name.
  var tallies: [String: Tally] = [:]
  /// The progress values of each batch, by the batch's follower.
  var progress: [TaskID: [BatchProgress]] = [:]
  /// The pending requests for all tasks with a tag.
  var askedTags: [String: [ModelOperation.Request]] = [:]
  /// Whether a run was cancelled or shut down, which may have cut attempts short.
  var runsWereCut = false
  /// Whether the queue is shutting down.
  ///
  /// The sequences of events end, but tasks can still be added and changed.
  var isShutDown = false
  /// The number of handlers running in each queue.
  var liveCounts: [String: Int] = [:]
  var lastNumber = 0
  /// The values of completions, by their names in the tasks' memory.
  var replies: [String: [UInt8]] = [:]
  private let log = Log<String>()

  init(_ configuration: ModelCase) { self.configuration = configuration }

  var violations: [String] { log.entries }

  /// Whether a queue is paused in the store.
  func isPausedInStore(_ queue: String) -> Bool {
    let suffix = queue.isEmpty ? "" : " \(queue)"
    return table.values[ExactText(StoredPause.valueName + suffix)] != nil
  }

  mutating func changeTally(of id: TaskID, _ change: (inout Tally) -> Void) {
    change(&tallies[entries[id]?.queue ?? "", default: Tally()])
  }

  func require(_ holds: Bool, _ text: @autoclosure () -> String) {
    if !holds, log.count < 10 { log.add(text()) }
  }

  /// The text that stands for a task in violations.
  func label(_ id: TaskID) -> String {
    let number = known.firstIndex(of: id).map { "task \($0)" } ?? "an unknown task"
    let state = table.record(of: id).map { "\($0.state)" } ?? "not stored"
    return "\(number) (\(state))"
  }

  func record(_ index: Int) -> TaskID? { known.isEmpty ? nil : known[index % known.count] }

  /// Requires that tasks aren't stored, because the call that enqueued them threw an error.
  func requireUnknown(_ works: [ModelWork]) {
    let numbers = Set(works.map(\.number))
    let stored = known.filter { numbers.contains(entries[$0]?.number ?? 0) }
    require(stored.isEmpty, "enqueue threw, but stored \(stored.map(label))")
  }

  // MARK: Handlers

  /// Records that an attempt starts, and returns the act to perform.
  mutating func recordBeginning(
    of id: TaskID,
    _ work: ModelWork,
    at now: VirtualClock.Instant
  ) -> Act {
    let entry = entries[id] ?? Entry()
    require(entry.lease != nil, "\(label(id)) is performed without a claim")
    require(entry.attempt == nil, "\(label(id)) is performed twice under one claim")
    require(!entry.hasEnded, "\(label(id)) is performed after its end was stored")
    liveCounts[entry.queue, default: 0] += 1
    let liveCount = liveCounts[entry.queue] ?? 0
    require(liveCount <= configuration.workers, "\(liveCount) tasks are performed at a time")
    if entry.claimed?.name == LimitedJob.taskName {
      let count = entries.values.count {
        $0.claimed?.name == LimitedJob.taskName && $0.queue == entry.queue
          && $0.attempt.map { $0.end == nil } ?? false
      }
      require(count == 0, "\(label(id)) is performed concurrently with another task of its name")
    }
    entries[id, default: entry].attempt = Attempt(began: now)
    entries[id]?.expectedEvents.append("started")
    entries[id]?.attemptCount += 1
    changeTally(of: id) { $0.attempts += 1 }
    // No task has 300 acts. Without this check, a wrong run might never end.
    guard entry.attemptCount < 300 else {
      require(false, "\(label(id)) is performed 300 times")
      return Act(end: .succeed)
    }
    return entry.actCount < work.acts.count ? work.acts[entry.actCount] : Act(end: .succeed)
  }

  mutating func recordEnd(
    of id: TaskID,
    _ end: End,
    wasCancelled: Bool,
    at now: VirtualClock.Instant
  ) {
    liveCounts[entries[id]?.queue ?? "", default: 0] -= 1
    require(
      entries[id]?.attempt?.end == nil && entries[id]?.attempt != nil,
      "\(label(id)) ended without a running attempt"
    )
    if case .suspended = end {} else { entries[id]?.actCount += 1 }
    entries[id]?.attempt?.end = end
    entries[id]?.attempt?.ended = now
    entries[id]?.attempt?.wasCancelled = wasCancelled
  }

  // MARK: The store

  mutating func recordClaim(_ claim: Claim, for request: ClaimRequest) {
    let expected = table.claimable(request).map(\.record.id)
    let found = claim.tasks.map(\.record.id)
    require(found == expected, "claimed: \(found.map(label)), expected: \(expected.map(label))")
    for task in claim.tasks {
      let id = task.record.id
      let isDue = task.record.availableDate <= request.now
      require(isDue, "\(label(id)) is claimed before its date")
      require(entries[id]?.lease == nil, "\(label(id)) is claimed twice")
      require(
        entries[id]?.hasEnded == false,
        "\(label(id)) is claimed, but has ended or was never stored"
      )
      entries[id]?.lease = task.lease
      entries[id]?.claimed = task.record
      entries[id]?.attempt = nil
      table.lease(task.lease)
    }
  }

  /// Checks and records changes that the store has applied.
  mutating func recordApplied(_ batch: [TaskChange], _ outcomes: [ChangeOutcome]) {
    let leftOut = skippedChanges(of: batch, outcomes)
    let answers = table.apply(zip(batch, leftOut).compactMap { $1 ? nil : $0 })
    var expected = answers.makeIterator()
    let all = leftOut.map { $0 ? .stale : expected.next() ?? .stale }
    require(outcomes == all, "\(batch) gave \(outcomes), expected: \(all)")
    for (index, change) in batch.enumerated() {
      switch outcomes[index] {
      case .done: recordStored(change)
      case .doneWithConsequences(let consequences):
        recordStored(change)
        recordConsequences(consequences, of: change)
      case .replaced(let twin): recordTakeover(by: twin, change)
      case .superseded(let successor):
        recordStored(change)
        recordSuperseding(change, by: successor)
      case .duplicate, .unmetDependency, .identityTaken, .stale, .commanded, .batchRefused,
        .valueDiffers:
        break
      }
    }
  }

  mutating func read(_ value: [UInt8]?, named name: String) {
    let expected = table.values[ExactText(name)]
    require(value == expected, "the value '\(name)' is \(value ?? []), not \(expected ?? [])")
  }

  mutating func end(_ id: TaskID, _ outcome: TaskOutcome, event: String) {
    require(entries[id]?.hasEnded == false, "\(label(id)) ends twice")
    entries[id]?.hasEnded = true
    entries[id]?.outcomes.append(outcome)
    expect(event, of: id)
    release(id)
  }

  /// The events that can occur while the queue isn't running.
  private static let eventsWithoutRun: Set<String> = [
    "enqueued", "cancelled", "cancelledAlong", "paused", "resumed", "restarted", "rescheduled",
    "updated", "completion arrived",
  ]

  /// Expects an event of a task, which may be missing if the queue ends first.
  mutating func expect(_ event: String, of id: TaskID) {
    if isShutDown, Self.eventsWithoutRun.contains(event) {
      let place = entries[id]?.expectedEvents.count ?? 0
      entries[id]?.omittableEvents.insert(place)
    }
    entries[id]?.expectedEvents.append(event)
  }

  /// Records that the queue is shutting down.
  ///
  /// The queue may then omit the events of changes that were stored just before.
  mutating func beginShutDown() {
    isShutDown = true
    for (id, entry) in entries where entry.seenEvents.count < entry.expectedEvents.count {
      let omittable = (entry.seenEvents.count..<entry.expectedEvents.count).filter {
        Self.eventsWithoutRun.contains(entry.expectedEvents[$0])
      }
      entries[id]?.omittableEvents.formUnion(omittable)
    }
  }

  /// Records that a task was removed.
  ///
  /// The removal has an event unless the task had ended.
  mutating func removed(_ id: TaskID) {
    if entries[id]?.hasEnded == false { end(id, .cancelled, event: "cancelled") }
  }

  /// Forgets the requests for tasks that are not claimed.
  ///
  /// No call is in progress at this moment, so no request can be carried out later.
  mutating func forgetRequests() {
    for (id, entry) in entries where entry.lease == nil { entries[id]?.asked = [] }
  }

  /// Records that the task's claim has ended.
  mutating func release(_ id: TaskID) {
    require(
      entries[id]?.attempt.map { $0.end != nil } ?? true,
      "\(label(id)) is released or ended during its attempt"
    )
    entries[id]?.lease = nil
    entries[id]?.claimed = nil
    entries[id]?.attempt = nil
  }
}
