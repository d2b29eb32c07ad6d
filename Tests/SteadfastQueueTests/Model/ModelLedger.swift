import Foundation
import SteadfastTesting
import TestSupport

@testable import SteadfastQueue

/// Everything that is known of a case's tasks: requests, what handlers did, what was stored.
///
/// Each event is checked against what came before it. An event that does not fit is a violation.
struct ModelLedger: Sendable {
  enum End: Sendable {
    case returned, failed, abandoned, snoozed(Int), retryAfter(Int), cancelled, suspended
  }

  /// An attempt of the present claim of a task.
  struct Attempt: Sendable {
    let began: VirtualClock.Instant
    var ended: VirtualClock.Instant?
    var end: End?
    /// Its Swift task was cancelled when the handler ended.
    var wasCancelled = false
    /// When the task is to wake, if the attempt has suspended it.
    var wakeDate: Date?
  }

  struct Entry: Sendable {
    var number = 0
    /// The name of its queue in the store.
    var queue = ""
    var lease: Lease?
    var claimed: TaskRecord?
    var attempt: Attempt?
    /// How many of its acts are over.
    ///
    /// One that has suspended the task is played again.
    var actCount = 0
    var attemptCount = 0
    var failureCount = 0
    /// The token that the task has handed out last.
    var token: TaskToken?
    /// The checkpoint that a handler has saved last.
    var checkpoint: Int?
    var outcomes: [TaskOutcome] = []
    var hasEnded = false
    var asked: Set<ModelOperation.Request> = []
    /// The task that has taken its place.
    var successor: TaskID?
    var expectedEvents: [String] = []
    var seenEvents: [String] = []
    /// Whether it was cancelled or restarted along with another one, or completed through another
    /// queue.
    ///
    /// Such an event comes when the other task's change is told, which may be after a later change
    /// of this one.
    var wasChangedAlong = false
    /// The task that follows when all of its batch have ended.
    var follower: TaskID?
    /// The expected events, by place, that an observer may miss because the queue has ended.
    var untoldEvents: Set<Int> = []
  }

  /// What the queue that runs has done, to compare with its statistics.
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
  /// What each queue that runs has done.
  var tallies: [String: Tally] = [:]
  /// The progress that each batch has had, by the task that follows it.
  var progress: [TaskID: [BatchProgress]] = [:]
  /// What is being asked of all tasks with a tag.
  var askedTags: [String: [ModelOperation.Request]] = [:]
  /// Whether a run was cancelled or shut down: attempts may have been cut short for that.
  var runsWereCut = false
  /// Whether the queue is being shut down.
  ///
  /// Its events end, and tasks may still be added and changed.
  var isShutDown = false
  /// How many handlers are at work in each queue.
  var liveCounts: [String: Int] = [:]
  var lastNumber = 0
  /// What waits were completed with, by the names under which tasks remember it.
  var replies: [String: [UInt8]] = [:]
  private let log = Log<String>()

  init(_ configuration: ModelCase) { self.configuration = configuration }

  var violations: [String] { log.entries }

  /// Whether the store says that a queue is paused.
  func isPausedInStore(_ queue: String) -> Bool {
    let suffix = queue.isEmpty ? "" : " \(queue)"
    return table.values[ExactText(StoredPause.valueName + suffix)] != nil
  }

  /// Changes what a task's queue has done.
  mutating func tally(_ id: TaskID, _ change: (inout Tally) -> Void) {
    change(&tallies[entries[id]?.queue ?? "", default: Tally()])
  }

  func require(_ holds: Bool, _ text: @autoclosure () -> String) {
    if !holds, log.count < 10 { log.add(text()) }
  }

  /// The name of a task in a violation.
  func label(_ id: TaskID) -> String {
    let number = known.firstIndex(of: id).map { "task \($0)" } ?? "a task that is not known"
    let state = table.record(of: id).map { "\($0.state)" } ?? "gone"
    return "\(number) (\(state))"
  }

  func record(_ index: Int) -> TaskID? { known.isEmpty ? nil : known[index % known.count] }

  /// Works whose enqueueing threw are not stored.
  func requireUnknown(_ works: [ModelWork]) {
    let numbers = Set(works.map(\.number))
    let stored = known.filter { numbers.contains(entries[$0]?.number ?? 0) }
    require(stored.isEmpty, "enqueue threw, and has stored \(stored.map(label))")
  }

  // MARK: Handlers

  /// Notes that an attempt begins; returns what it is to do.
  mutating func began(_ id: TaskID, _ work: ModelWork, at now: VirtualClock.Instant) -> Act {
    let entry = entries[id] ?? Entry()
    require(entry.lease != nil, "\(label(id)) is performed though nobody has claimed it")
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
      require(count == 0, "\(label(id)) is performed beside another of its name")
    }
    entries[id, default: entry].attempt = Attempt(began: now)
    entries[id]?.expectedEvents.append("started")
    entries[id]?.attemptCount += 1
    tally(id) { $0.attempts += 1 }
    // No task has that much to do. This ends a run that would not end by itself.
    guard entry.attemptCount < 300 else {
      require(false, "\(label(id)) is performed 300 times")
      return Act(end: .succeed)
    }
    return entry.actCount < work.acts.count ? work.acts[entry.actCount] : Act(end: .succeed)
  }

  mutating func ended(_ id: TaskID, _ end: End, wasCancelled: Bool, at now: VirtualClock.Instant) {
    liveCounts[entries[id]?.queue ?? "", default: 0] -= 1
    require(
      entries[id]?.attempt?.end == nil && entries[id]?.attempt != nil,
      "\(label(id)) ended, but was not performed"
    )
    if case .suspended = end {} else { entries[id]?.actCount += 1 }
    entries[id]?.attempt?.end = end
    entries[id]?.attempt?.ended = now
    entries[id]?.attempt?.wasCancelled = wasCancelled
  }

  // MARK: The store

  mutating func claimed(_ claim: Claim, for request: ClaimRequest) {
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

  /// The store has made changes.
  mutating func applied(_ batch: [TaskChange], _ outcomes: [ChangeOutcome]) {
    let leftOut = leftOut(of: batch, outcomes)
    let answers = table.apply(zip(batch, leftOut).compactMap { $1 ? nil : $0 })
    var expected = answers.makeIterator()
    let all = leftOut.map { $0 ? .stale : expected.next() ?? .stale }
    require(outcomes == all, "\(batch) gave \(outcomes), expected: \(all)")
    for (index, change) in batch.enumerated() {
      switch outcomes[index] {
      case .done: note(change)
      case .doneWithConsequences(let consequences):
        note(change)
        note(consequences, of: change)
      case .replaced(let twin): takenOver(by: twin, change)
      case .superseded(let successor):
        note(change)
        superseded(change, by: successor)
      case .duplicate, .unmetDependency, .identityTaken, .stale, .batchRefused, .valueDiffers: break
      }
    }
  }

  /// The store has read a value.
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

  /// What may happen to a task though no run is under way.
  private static let eventsWithoutRun: Set<String> = [
    "enqueued", "cancelled", "cancelledAlong", "paused", "resumed", "restarted", "rescheduled",
    "updated", "completion arrived",
  ]

  /// An event is to be told, unless the queue ends before.
  mutating func expect(_ event: String, of id: TaskID) {
    if isShutDown, Self.eventsWithoutRun.contains(event) {
      let place = entries[id]?.expectedEvents.count ?? 0
      entries[id]?.untoldEvents.insert(place)
    }
    entries[id]?.expectedEvents.append(event)
  }

  /// The queue is being shut down: what was stored just before may not be told any more.
  mutating func beginShutDown() {
    isShutDown = true
    for (id, entry) in entries where entry.seenEvents.count < entry.expectedEvents.count {
      let untold = (entry.seenEvents.count..<entry.expectedEvents.count).filter {
        Self.eventsWithoutRun.contains(entry.expectedEvents[$0])
      }
      entries[id]?.untoldEvents.formUnion(untold)
    }
  }

  /// Notes that a task was removed; one that had ended leaves without an event.
  mutating func removed(_ id: TaskID) {
    if entries[id]?.hasEnded == false { end(id, .cancelled, event: "cancelled") }
  }

  /// Forgets what was asked of tasks that are not performed.
  ///
  /// No call is under way at this moment, so these requests were carried out, or never will be.
  mutating func forgetRequests() {
    for (id, entry) in entries where entry.lease == nil { entries[id]?.asked = [] }
  }

  /// The task is not claimed any more.
  mutating func release(_ id: TaskID) {
    require(
      entries[id]?.attempt.map { $0.end != nil } ?? true,
      "\(label(id)) is put back or ended while it is performed"
    )
    entries[id]?.lease = nil
    entries[id]?.claimed = nil
    entries[id]?.attempt = nil
  }
}
