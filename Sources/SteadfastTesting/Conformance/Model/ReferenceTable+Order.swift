import SteadfastQueue

/// Order keys and conditions in the reference.
extension ReferenceTable {
  /// The tasks that wait for nothing but their dates, their conditions and a worker.
  package var waiting: [Entry] {
    let waitingForOthers = waitingForOthers
    return entries.filter { entry in
      entry.record.state == .waiting && entry.record.keyRole != .successor && isHead(entry)
        && !waitingForOthers.contains(entry.record.id)
    }
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
