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
  fileprivate struct State {
    var isOn = false
    var freed: [ExactText: FreedTasks] = [:]
    /// What each queue that claims has yet to hear.
    var toAll: [ExactText: FreedTasks] = [:]
  }

  private let state = Mutex(State())

  /// Begins to note, or ends it.
  func set(isOn: Bool) {
    state.withLock { state in
      if state.isOn != isOn { state = State(isOn: isOn) }
    }
  }

  /// Notes what a transaction has made available, before the callers hear of it.
  ///
  /// - Parameters:
  ///   - group: Its changes.
  ///   - hasFreedOthers: Whether other tasks than those that it names may have become available.
  func note(_ group: BatchGroup, hasFreedOthers: Bool) {
    state.withLock { state in
      guard state.isOn else { return }
      var ofAll = FreedTasks()
      ofAll.areAnywhere = hasFreedOthers
      for batch in group.batches {
        for change in batch { state.note(change.change, &ofAll) }
      }
      guard ofAll.areAnywhere || ofAll.earliest != nil else { return }
      for queue in state.toAll.keys { state.toAll[queue]?.add(ofAll) }
    }
  }

  /// Notes that tasks may have become available, anywhere.
  func noteOthers() {
    let freed = FreedTasks(areAnywhere: true)
    state.withLock { state in
      for queue in state.toAll.keys { state.toAll[queue]?.add(freed) }
    }
  }

  /// What was noted for a queue since the last call.
  func take(forQueue queue: String) -> FreedTasks {
    state.withLock { state in
      let queue = ExactText(queue)
      var freed = state.freed.removeValue(forKey: queue) ?? FreedTasks()
      if let toAll = state.toAll.updateValue(FreedTasks(), forKey: queue) { freed.add(toAll) }
      return freed
    }
  }
}

extension FreedTaskNotes.State {
  fileprivate mutating func note(_ change: TaskChange, _ ofAll: inout FreedTasks) {
    switch change {
    case .insert(let record, _):
      let lane = ClaimStarts.Lane(name: ExactText(record.name), rank: ~record.priority.rawValue)
      let queue = ExactText(record.queue)
      let earlier = freed[queue]?.dates[lane] ?? .distantFuture
      freed[queue, default: FreedTasks()].dates[lane] = min(earlier, record.availableDate)
    case .retry(_, let date, _, _), .suspend(_, let date, awaiting: []):
      ofAll.earliest = min(ofAll.earliest ?? .distantFuture, date)
    case .succeed, .abandon, .park, .cancel, .pause, .extend, .remember, .setValue, .prune, .remove:
      break
    case .release, .unpark, .resume, .restart, .reschedule, .update, .rebase, .suspend, .complete:
      ofAll.areAnywhere = true
    @unknown default:
      ofAll.areAnywhere = true
    }
  }
}

extension FreedTasks {
  fileprivate mutating func add(_ other: FreedTasks) {
    areAnywhere = areAnywhere || other.areAnywhere
    if let date = other.earliest { earliest = min(earliest ?? .distantFuture, date) }
  }
}
#endif
