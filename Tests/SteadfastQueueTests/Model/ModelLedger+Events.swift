import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// Checks the events that an observer has received.
extension ModelLedger {
  mutating func recordEvent(_ event: TaskEvent) {
    let (id, name): (TaskID, String)
    switch event {
    case .enqueued(let record): (id, name) = (record.id, "enqueued")
    case .started(let record): (id, name) = (record.id, "started")
    case .suspended(let record, _): (id, name) = (record.id, "suspended")
    case .completionArrived(let completed): (id, name) = (completed, "completion arrived")
    case .failed(let record, _, _, _): (id, name) = (record.id, "failed")
    case .snoozed(let record, _): (id, name) = (record.id, "snoozed")
    case .succeeded(let record, _): (id, name) = (record.id, "succeeded")
    case .abandoned(let record, _, _): (id, name) = (record.id, "abandoned")
    case .cancelled(let task): (id, name) = (task, "cancelled")
    case .paused(let task): (id, name) = (task, "paused")
    case .resumed(let task): (id, name) = (task, "resumed")
    case .retried(let task): (id, name) = (task, "restarted")
    case .rescheduled(let task, _): (id, name) = (task, "rescheduled")
    case .updated(let task): (id, name) = (task, "updated")
    case .superseded(let record, _): (id, name) = (record.id, "superseded")
    case .released(let record): (id, name) = (record.id, "released")
    case .missed(let count): return require(false, "\(count) events were missed")
    case .cancelledByDependency(let task, let cause):
      require(entries[cause] != nil, "a cascade comes from a task that was never stored")
      (id, name) = (task, "cancelledAlong")
    case .batchProgressed(let follower, let batch):
      let wasSo = progress[follower]?.contains(batch) ?? false
      return require(wasSo, "the batch of the follower \(label(follower)) was never at \(batch)")
    case .progressed, .unhandled, .storeUnavailable, .occurrencesMissed, .scheduleParked,
      .rateLimited:
      return
    @unknown default: return
    }
    require(entries[id] != nil, "an observer saw '\(name)' for a task that was never stored")
    entries[id]?.seenEvents.append(name)
  }
}

extension ModelLedger.Entry {
  /// Checks that the events came in order, and that no required event is missing.
  var hasSeenExpectedEvents: Bool {
    wasChangedAlong ? hasSeenInAnyOrder : isExpected(seenEvents[...], from: 0)
  }

  /// Whether the events match the expected events from an index on.
  ///
  /// Some of these may be missing.
  private func isExpected(_ seen: ArraySlice<String>, from place: Int) -> Bool {
    guard place < expectedEvents.count else { return seen.isEmpty }
    if seen.first == expectedEvents[place], isExpected(seen.dropFirst(), from: place + 1) {
      return true
    }
    return omittableEvents.contains(place) && isExpected(seen, from: place + 1)
  }

  private var hasSeenInAnyOrder: Bool {
    var unseen = Array(expectedEvents.enumerated())
    for event in seenEvents {
      let places = unseen.indices.filter { unseen[$0].element == event }
      let place = places.first { !omittableEvents.contains(unseen[$0].offset) } ?? places.first
      guard let place else { return false }
      unseen.remove(at: place)
    }
    return unseen.allSatisfy { omittableEvents.contains($0.offset) }
  }
}

extension TaskRecord {
  var modelSummary: String {
    """
    \(id) \(name) \(state) \(availableDate.timeIntervalSince1970) \(retryCount) \
    \(interruptionCount) \(lastError ?? "-") \(failedDate?.timeIntervalSince1970 ?? 0) \
    \(failures.map { "\($0.date.timeIntervalSince1970) \($0.attempt?.text ?? "-")" }) \
    \(earlierFailures.map(\.reason)) \
    \(finishedDate?.timeIntervalSince1970 ?? 0) \(isPostponed) \(memorySize > 0) \
    \(dependencies.modelSummary)
    """
  }
}

extension TaskDependencies {
  fileprivate var modelSummary: String {
    let ended = failed.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
    let progress = batch.map { "\($0)" } ?? "-"
    return "\(tasks.sorted()) \(rule) \(follower.debugText) \(ended) \(cause.debugText) \(progress)"
  }
}

extension TaskID? {
  fileprivate var debugText: String { map { "\($0)" } ?? "-" }
}
