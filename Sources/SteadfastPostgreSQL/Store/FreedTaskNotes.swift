#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What the thread that writes notes for the one that claims, while that one needs it.
final class FreedTaskNotes: Sendable {
  /// What each queue has yet to hear; `nil` if nothing is noted.
  private let freed = Mutex<[ExactText: FreedTasks]?>(nil)

  /// Begins to note, or ends it.
  func set(isOn: Bool) {
    freed.withLock { freed in
      if (freed != nil) != isOn { freed = isOn ? [:] : nil }
    }
  }

  /// Notes what a transaction has made available, before the callers hear of it.
  ///
  /// - Parameters:
  ///   - group: Its changes.
  ///   - hasFreedOthers: Whether other tasks than those that it names may have become available.
  func note(_ group: BatchGroup, hasFreedOthers: Bool) {
    freed.withLock { freed in
      guard freed != nil else { return }
      var ofAll = FreedTasks(areAnywhere: hasFreedOthers)
      for batch in group.batches {
        for change in batch { freed?.note(change.change, &ofAll) }
      }
      freed?.noteForAll(ofAll)
    }
  }

  /// Notes that tasks may have become available, anywhere.
  func noteOthers() {
    freed.withLock { $0?.noteForAll(FreedTasks(areAnywhere: true)) }
  }

  /// What was noted for a queue since the last call.
  func take(forQueue queue: String) -> FreedTasks {
    freed.withLock { $0?.updateValue(FreedTasks(), forKey: ExactText(queue)) } ?? FreedTasks()
  }
}

extension [ExactText: FreedTasks] {
  fileprivate mutating func note(_ change: TaskChange, _ ofAll: inout FreedTasks) {
    switch change {
    case .insert(let record, _):
      self[ExactText(record.queue), default: FreedTasks()].add(record)
    case .retry(_, let date, _, _, _), .suspend(_, let date, awaiting: [], _):
      ofAll.add(date)
    case .succeed, .abandon, .park, .cancel, .pause, .extend, .remember, .setValue, .prune, .remove:
      break
    case .release, .unpark, .resume, .restart, .reschedule, .update, .rebase, .suspend, .complete:
      ofAll.areAnywhere = true
    @unknown default:
      ofAll.areAnywhere = true
    }
  }

  /// Notes for each queue what may concern tasks of any.
  fileprivate mutating func noteForAll(_ freed: FreedTasks) {
    guard freed.areAnywhere || freed.earliest != nil else { return }
    for queue in keys { self[queue]?.add(freed) }
  }
}

extension FreedTasks {
  fileprivate mutating func add(_ record: TaskRecord) {
    let lane = ClaimStarts.Lane(of: record)
    dates[lane] = min(dates[lane] ?? .distantFuture, record.availableDate)
  }

  fileprivate mutating func add(_ date: Date) {
    earliest = min(earliest ?? .distantFuture, date)
  }

  fileprivate mutating func add(_ other: FreedTasks) {
    areAnywhere = areAnywhere || other.areAnywhere
    if let date = other.earliest { add(date) }
  }
}
#endif
