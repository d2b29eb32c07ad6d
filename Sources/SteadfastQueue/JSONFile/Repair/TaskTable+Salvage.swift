extension TaskTable {
  /// Applies an entry of a damaged file and, if need be, what the entry presupposes.
  ///
  /// A stored line proves what lost lines before it have done.
  ///
  /// - Returns: Whether the entry could be applied.
  mutating func salvage(_ entry: JournalEntry) -> Bool {
    // The line that opened the value may be lost, and an intact file may have a completion that
    // came too late. So the line can always be replayed, and the value is opened before.
    if case .change(.complete(let id, let name, _)) = entry { open(name, of: id) }
    if replay(entry) { return true }
    if presuppose(entry), replay(entry) { return true }
    switch entry {
    case .addition(let record, .takenOver(by: let id)):
      // Lines of the task that took it over are lost.
      if slot(of: id) == nil { return salvage(.addition(record.replacing(id: id), .holder)) }
      return salvage(.addition(record, .successor))
    case .supersession(let change):
      // The line of the successor is lost.
      return salvage(.change(change))
    case .header, .task, .compacted, .change, .addition, .restart, .value, .begin, .interruption,
      .memory, .seal:
      return false
    }
  }

  /// Applies what must have happened before an entry was written.
  ///
  /// - Returns: Whether that may be enough to apply the entry.
  private mutating func presuppose(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .task(let task):
      return freeKey(for: task.record)
    case .addition(_, .takenOver(by: let id)):
      return putToRest(id)
    case .addition(let record, .successor):
      return freeRole(.successor, for: record)
    case .addition(let record, .holder):
      // The holder had ended, and so had its successor.
      let isFree = freeRole(.holder, for: record)
      _ = freeRole(.holder, for: record)
      return isFree
    case .supersession(let change):
      return presuppose(change)
    case .begin(let id):
      return makeAvailable(id)
    case .change(let change), .restart(let change, _):
      return presuppose(change)
    case .memory(let id, _, _):
      guard slot(of: id) != nil else { return false }
      lastRestored = id
      return true
    case .header, .compacted, .value, .interruption, .seal:
      return true
    }
  }

  private mutating func presuppose(_ change: TaskChange) -> Bool {
    switch change {
    case .insert(let record, _):
      return freeKey(for: record)
    case .succeed(let lease, _, _), .retry(let lease, _, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _), .remember(let lease, _, _),
      .suspend(let lease, _, _, _):
      return salvage(.begin(lease.id))
    case .remove(let id):
      return end(id)
    case .restart(let target, _, _):
      guard let slot = slot(of: target.id) else { return false }
      return freeRole(.holder, for: entries[slot].record)
    case .cancel, .pause, .resume, .reschedule, .update, .unpark, .prune, .rebase, .complete,
      .setValue:
      return false
    }
  }

  /// Takes the key of a new task from the tasks that have it.
  ///
  /// The new task was stored with that key, so the others had ended.
  private mutating func freeKey(for record: TaskRecord) -> Bool {
    guard slot(of: record.id) == nil, let key = record.uniqueKey else { return false }
    // In a file of an earlier version, a task of any name may have had it, even one that had ended.
    let others = keys.slots(with: [key]).filter { !entries[$0].hasLostKey }
    for slot in others { loseKey(slot) }
    return !others.isEmpty
  }

  /// Takes a role for a key from the task that has it.
  private mutating func freeRole(_ role: UniqueKeyRole, for record: TaskRecord) -> Bool {
    guard let key = record.uniqueKey, let lane = lanes.lane(of: record.name, in: record.queue)
    else { return false }
    let roles = keys[key, lane]
    guard let slot = role == .holder ? roles.holder : roles.successor else { return false }
    loseKey(slot)
    return true
  }

  /// Makes a task wait, because a later line says that another one of its key was taken over.
  private mutating func putToRest(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id) else { return false }
    switch entries[slot].place {
    case .leased(let token): return replay(.change(.release(Lease(id: id, token: token))))
    case .finished: return makeAvailable(id)
    case .staged, .waiting, .ready, .held, .suspended, .parked, .paused: return false
    }
  }

  /// Makes a task available, because a later line says that an attempt at it began.
  ///
  /// So the task was no longer parked, paused or ended.
  private mutating func makeAvailable(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id) else { return false }
    let record = entries[slot].record
    switch entries[slot].place {
    case .parked: return replay(.change(.unpark(name: record.name, queue: record.queue)))
    case .paused: return replay(.change(.resume(id)))
    case .suspended:
      // Its completion is lost.
      let date = record.createdDate
      let wake = TaskChange.reschedule(.unclaimed(id), availableDate: date, countedFrom: date)
      return replay(.change(wake))
    case .finished:
      let restart = TaskChange.restart(.unclaimed(id), availableDate: record.availableDate)
      return replay(.change(restart))
    case .held:
      // The end of the holder is lost, or everything about it.
      if record.keyRole == .successor, !freeRole(.holder, for: record) { takeFreeRole(slot) }
      if entries[slot].isBehindHead, let key = orderKey(of: slot) { releaseHead(of: key) }
      if entries[slot].waitsForOthers { stopWaiting(slot) }
      return true
    case .staged, .waiting, .ready, .leased: return false
    }
  }

  /// Opens a value of which a task that has not ended remembers nothing, because a later line
  /// completes it.
  private mutating func open(_ name: String, of id: TaskID) {
    guard let slot = slot(of: id), !entries[slot].record.state.isFinished,
      memories[slot][name] == nil
    else { return }
    remember([], name, slot)
  }

  /// Releases the head of an order key, because another task with the key was performed.
  private mutating func releaseHead(of key: OrderKeys.Key) {
    guard let head = order.head(of: key),
      case .leased(let token) = entries[head.slot].place
    else { return }
    _ = replay(.change(.release(Lease(id: entries[head.slot].record.id, token: token))))
  }

  /// Ends a task, because a later line says that it was removed.
  private mutating func end(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id), !entries[slot].record.state.isFinished else { return false }
    let date = entries[slot].record.availableDate
    return replay(.change(.cancel(.unclaimed(id), at: date, retains: true)))
  }
}
