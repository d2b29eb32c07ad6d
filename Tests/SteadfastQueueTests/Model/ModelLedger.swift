import Foundation
import SteadfastTesting
import TestSupport

@testable import SteadfastQueue

/// Records the requests, attempts and stored changes of a case's tasks.
///
/// Checks each event against the earlier ones, and records a violation if it contradicts them.
struct ModelLedger: Sendable {
  enum End: Sendable {
    case returned, failed, abandoned, snoozed(Int), retryAfter(Int), cancelled, suspended
  }

  /// An attempt of the current claim of a task.
  struct Attempt: Sendable {
    let began: VirtualClock.Instant
    var ended: VirtualClock.Instant?
    var end: End?
    /// Whether the handler's Swift task had been cancelled when the handler ended.
    var wasCancelled = false
    /// When the task wakes, if the attempt suspended it.
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
    /// An act that suspended the task runs again.
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
    /// Whether a cascade cancelled or restarted the task, or another queue completed its wait.
    ///
    /// Such an event arrives with the events of the other task's change, so perhaps after an event
    /// of a later change of this task.
    var wasChangedAlong = false
    /// The follower of the task's batch.
    var follower: TaskID?
    /// The indices of the expected events that an observer may miss because the queue has ended.
    var untoldEvents: Set<Int> = []
  }

  /// The counts of a queue, to compare with its statistics.
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
  /// All tasks that were stored, in order.
  var known: [TaskID] = []
  var specifications: [Int: Specification] = [:]
  /// The counts of each current queue.
  var tallies: [String: Tally] = [:]
  /// Each progress that a batch has reached, by the batch's follower.
  var progress: [TaskID: [BatchProgress]] = [:]
  /// The pending requests for all tasks with a tag.
  var askedTags: [String: [ModelOperation.Request]] = [:]
  /// Whether a run was cancelled or shut down, which may have cut attempts short.
  var runsWereCut = false
  /// Whether the queue is shutting down.
  ///
  /// Its events end, but tasks can still be added and changed.
  var isShutDown = false
  /// The number of handlers running in each queue.
  var liveCounts: [String: Int] = [:]
  var lastNumber = 0
  /// The values that completed waits, by their names in the tasks' memories.
  var replies: [String: [UInt8]] = [:]
  private let log = Log<String>()

  init(_ configuration: ModelCase) { self.configuration = configuration }

  var violations: [String] { log.entries }

  /// Whether a queue is paused in the store.
  func isPausedInStore(_ queue: String) -> Bool {
    let suffix = queue.isEmpty ? "" : " \(queue)"
    return table.values[ExactText(StoredPause.valueName + suffix)] != nil
  }

  /// Changes the counts of a task's queue.
  mutating func changeTally(of id: TaskID, _ change: (inout Tally) -> Void) {
    change(&tallies[entries[id]?.queue ?? "", default: Tally()])
  }

  func require(_ holds: Bool, _ text: @autoclosure () -> String) {
    if !holds, log.count < 10 { log.add(text()) }
  }

  /// The name of a task in a violation.
  func label(_ id: TaskID) -> String {
    let number = known.firstIndex(of: id).map { "task \($0)" } ?? "an unknown task"
    let state = table.record(of: id).map { "\($0.state)" } ?? "not stored"
    return "\(number) (\(state))"
  }

  func record(_ index: Int) -> TaskID? { known.isEmpty ? nil : known[index % known.count] }

  /// Requires that tasks whose enqueueing threw are not stored.
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
    // Ends a run that would never end: no task has 300 acts.
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
      case .duplicate, .unmetDependency, .identityTaken, .stale, .batchRefused, .valueDiffers: break
      }
    }
  }

  /// Checks a value that the store has read.
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

  /// The events that can happen without a run.
  private static let eventsWithoutRun: Set<String> = [
    "enqueued", "cancelled", "cancelledAlong", "paused", "resumed", "restarted", "rescheduled",
    "updated", "completion arrived",
  ]

  /// Expects an event, unless the queue ends first.
  mutating func expect(_ event: String, of id: TaskID) {
    if isShutDown, Self.eventsWithoutRun.contains(event) {
      let place = entries[id]?.expectedEvents.count ?? 0
      entries[id]?.untoldEvents.insert(place)
    }
    entries[id]?.expectedEvents.append(event)
  }

  /// Records that the queue is shutting down: it may omit the events of changes stored just before.
  mutating func beginShutDown() {
    isShutDown = true
    for (id, entry) in entries where entry.seenEvents.count < entry.expectedEvents.count {
      let untold = (entry.seenEvents.count..<entry.expectedEvents.count).filter {
        Self.eventsWithoutRun.contains(entry.expectedEvents[$0])
      }
      entries[id]?.untoldEvents.formUnion(untold)
    }
  }

  /// Records that a task was removed, which has an event unless the task is finished.
  mutating func removed(_ id: TaskID) {
    if entries[id]?.hasEnded == false { end(id, .cancelled, event: "cancelled") }
  }

  /// Forgets the requests for tasks that are not claimed.
  ///
  /// No call is in progress at this moment, so these requests were carried out, or never will be.
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
