extension TaskTable {
  /// Applies an entry of a damaged file and, if need be, what the entry presupposes.
  ///
  /// A stored line proves what lost lines before it have done.
  ///
  /// - Returns: Whether the entry could be applied.
  mutating func salvage(_ entry: JournalEntry) -> Bool {
    if replay(entry) { return true }
    return presuppose(entry) && replay(entry)
  }

  /// Applies what must have happened before an entry was written.
  ///
  /// - Returns: Whether that may be enough to apply the entry.
  private mutating func presuppose(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .task(let task):
      return freeKey(for: task.record)
    case .begin(let id):
      return makeAvailable(id)
    case .change(let change):
      return presuppose(change)
    case .header, .compacted, .interruption, .seal:
      return true
    }
  }

  private mutating func presuppose(_ change: TaskChange) -> Bool {
    switch change {
    case .insert(let record, _):
      return freeKey(for: record)
    case .succeed(let lease, _, _), .retry(let lease, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _):
      return salvage(.begin(lease.id))
    case .remove(let id):
      return end(id)
    case .cancel, .pause, .resume, .restart, .reschedule, .update, .unpark, .prune, .rebase:
      return false
    }
  }

  /// Takes the key of a task from the present holder.
  ///
  /// The task was stored with that key, so the holder had lost it by then.
  private mutating func freeKey(for record: TaskRecord) -> Bool {
    guard slot(of: record.id) == nil, let key = record.uniqueKey, let holder = keys.holder(of: key)
    else {
      return false
    }
    entries[holder].hasLostKey = true
    keys.take(key, from: holder)
    return true
  }

  /// Makes a task available, because a later line says that an attempt at it began.
  ///
  /// So the task was no longer parked, paused or ended.
  private mutating func makeAvailable(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id) else { return false }
    let record = entries[slot].record
    switch entries[slot].place {
    case .parked: return replay(.change(.unpark(name: record.name)))
    case .paused: return replay(.change(.resume(id)))
    case .finished:
      let restart = TaskChange.restart(.unclaimed(id), availableDate: record.availableDate)
      return replay(.change(restart))
    case .staged, .waiting, .ready, .leased: return false
    }
  }

  /// Ends a task, because a later line says that it was removed.
  private mutating func end(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id), !entries[slot].record.state.isFinished else { return false }
    let date = entries[slot].record.availableDate
    return replay(.change(.cancel(.unclaimed(id), at: date, retains: true)))
  }
}
