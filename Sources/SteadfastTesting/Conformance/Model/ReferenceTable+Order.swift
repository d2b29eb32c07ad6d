import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Order keys and conditions in the reference.
extension ReferenceTable {
  /// The tasks that wait for nothing but their dates, their conditions and a worker.
  package var waiting: [Entry] {
    let waitingForOthers = waitingForOthers
    return entries.filter { entry in
      isDueOnDate(entry.record) && entry.record.keyRole != .successor && isHead(entry)
        && !waitingForOthers.contains(entry.record.id)
    }
  }

  /// Returns whether a date makes a task available.
  private func isDueOnDate(_ record: TaskRecord) -> Bool {
    record.state == .waiting
      || record.state == .suspended && record.availableDate < .distantFuture
  }

  /// Returns whether no other task with the order key runs, and none comes before this one.
  private func isHead(_ entry: Entry) -> Bool {
    guard let key = entry.record.orderKey else { return true }
    return !entries.contains { other in
      guard other.record.orderKey?.isExactly(key) == true, other.record.id != entry.record.id,
        other.record.queue.isExactly(entry.record.queue)
      else { return false }
      let counts = !other.record.state.isFinished || other.record.holdsUpOthers
      return other.record.state == .running || counts && other.number < entry.number
    }
  }
}
