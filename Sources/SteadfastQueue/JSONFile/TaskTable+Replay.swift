extension TaskTable {
  /// Does again what an entry of the file says.
  ///
  /// Whether it was possible.
  mutating func replay(_ entry: JournalEntry) -> Bool {
    switch entry {
    case .header, .compacted, .seal: return true
    case .task(let task): return restore(task)
    case .begin(let id): return replayBeginning(of: id)
    case .interruption:
      interruptLeased()
      return true
    case .change(let change):
      guard let change = withPresentLease(change) else { return false }
      let staged = stage(change)
      commit(staged)
      return staged.isKept
    }
  }

  /// Takes note of how many bytes the line takes that an entry was read from.
  mutating func setByteCount(_ count: Int, of entry: JournalEntry) {
    let id: TaskID
    switch entry {
    case .task(let task): id = task.record.id
    case .change(.insert(let record, _)): id = record.id
    case .header, .compacted, .change, .begin, .interruption, .seal: return
    }
    if let slot = slots[id] { addBytes(count, to: slot) }
  }

  /// Makes tasks that were being performed when the file was last used available again, each with
  /// one interruption more.
  @discardableResult
  mutating func interruptLeased() -> Int {
    var count = 0
    for slot in slots.values {
      guard case .leased = entries[slot].place else { continue }
      count += 1
      entries[slot].record.countInterruption()
      setState(.waiting, of: slot)
      lineUp(slot)
    }
    return count
  }

  /// Puts a task back that a compaction has written.
  private mutating func restore(_ task: KeptTask) -> Bool {
    let id = task.record.id
    let key = task.hasLostKey ? nil : task.record.uniqueKey
    guard slots[id] == nil, key.map({ keyHolders[$0] == nil }) ?? true else { return false }
    let slot = entries.insert(
      Entry(
        record: task.record,
        place: .staged,
        hasLostKey: task.hasLostKey,
        lane: enterLane(of: task.record.name),
        position: task.position
      )
    )
    slots[id] = slot
    if let key { keyHolders[key] = slot } else { loseKey(of: slot) }
    readmit(slot)
    return true
  }

  private mutating func replayBeginning(of id: TaskID) -> Bool {
    guard let slot = slots[id] else { return false }
    switch entries[slot].place {
    case .leased:
      // The process that had begun the task ended before the attempt did.
      entries[slot].record.countInterruption()
      _ = lease(slot)
      return true
    case .waiting, .ready:
      _ = lease(slot)
      return true
    case .staged, .parked, .paused, .finished:
      return false
    }
  }

  /// The change with the token of the lease that its task has now; `nil` if it has none.
  private func withPresentLease(_ change: TaskChange) -> TaskChange? {
    func present(_ lease: Lease) -> Lease? {
      guard let slot = slots[lease.id], case .leased(let token) = entries[slot].place else {
        return nil
      }
      return Lease(id: lease.id, token: token)
    }
    func present(_ target: TaskTarget) -> TaskTarget {
      present(Lease(id: target.id, token: 0)).map { .claimed($0) } ?? .unclaimed(target.id)
    }
    switch change {
    case .insert, .unpark, .resume, .remove, .prune, .rebase:
      return change
    case .cancel(let target, let date, let keeps):
      return .cancel(present(target), at: date, keeps: keeps)
    case .pause(let target):
      return .pause(present(target))
    case .restart(let target, let date):
      return .restart(present(target), availableDate: date)
    case .reschedule(let target, let date):
      return .reschedule(present(target), availableDate: date)
    case .extend(let lease, let date):
      return present(lease).map { .extend($0, until: date) }
    case .succeed(let lease, let date, let keeps):
      return present(lease).map { .succeed($0, at: date, keeps: keeps) }
    case .retry(let lease, let date, let count, let failure):
      return present(lease).map {
        .retry($0, availableDate: date, retryCount: count, failure: failure)
      }
    case .abandon(let lease, let failure, let keeps):
      return present(lease).map { .abandon($0, failure: failure, keeps: keeps) }
    case .release(let lease):
      return present(lease).map { .release($0) }
    case .park(let lease, let failure):
      return present(lease).map { .park($0, failure: failure) }
    }
  }
}
