#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A step of a schedule: the changes that make it, and what to tell when they are stored.
struct ScheduleStep {
  let key: ScheduleKey
  /// The schedule after the step.
  let schedule: StoredSchedule
  /// The changes, the first of which compares and sets the schedule.
  var changes: [TaskChange]
  /// The next occurrence; `nil` if the schedule is parked.
  let next: TaskRecord?
  /// What became of the dates until now.
  var catchUp: CatchUp?
  /// The value that holds the schedule, after the step.
  let bytes: [UInt8]
  /// The schedule before the step, if there was one.
  var before: StoredSchedule?
  /// The place in the batch of the change that ends the occurrence before, if there is one.
  var endIndex: Int?
}

/// A change of a batch that ends an occurrence.
struct OccurrenceEnd {
  /// The place of the change in the batch.
  let index: Int
  let id: TaskID
  /// The name of the queue whose task it is, if another queue ends it.
  let queue: String?
  /// When the latest of the occurrences was made that end in the batch, in milliseconds.
  ///
  /// A call that goes through all tasks, in the order of their IDs, must not come to those that
  /// follow from it, even if no time passes. So they are made later.
  var latest: UInt64
  /// Whether the occurrence was performed, or a caller has cancelled it; `false` if it was missed.
  let wasHandled: Bool

  /// Returns the end of an occurrence, if a change is that.
  init?(
    _ index: Int,
    _ change: TaskChange,
    ofQueue queue: @autoclosure () -> String? = nil,
    wasHandled: Bool = true
  ) {
    let id: TaskID
    switch change {
    case .succeed(let lease, _, _), .abandon(let lease, _, _): id = lease.id
    case .cancel(let target, _, _): id = target.id
    default: return nil
    }
    guard id.isOccurrence else { return nil }
    self.init(index, id, ofQueue: queue(), wasHandled: wasHandled)
  }

  /// Returns the ends of occurrences among settlements, in whose order a batch changes the tasks.
  static func all(in settlements: some Collection<Settlement>) -> [OccurrenceEnd] {
    // Most batches have none.
    guard settlements.contains(where: { $0.record.id.isOccurrence }) else { return [] }
    return settlements.enumerated().compactMap { index, settlement in
      OccurrenceEnd(index, settlement.change, wasHandled: settlement.wasBegun)
    }
  }

  init(_ index: Int, _ id: TaskID, ofQueue queue: String? = nil, wasHandled: Bool = true) {
    self.index = index
    self.id = id
    self.queue = queue
    latest = id.madeMilliseconds
    self.wasHandled = wasHandled
  }

  func replacing(latest: UInt64) -> OccurrenceEnd {
    var end = self
    end.latest = latest
    return end
  }

  /// The schedule of which the task is an occurrence.
  var key: ScheduleKey { id.scheduleKey(ofQueue: queue) }
}
