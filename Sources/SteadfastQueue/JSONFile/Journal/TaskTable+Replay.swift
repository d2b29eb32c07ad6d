extension TaskTable {
  /// Applies an entry of a file to the table.
  ///
  /// `byteCount` is the size of the entry's line, which counts as the size of the task or value
  /// that the entry adds.
  ///
  /// - Returns: Whether the entry could be applied.
  mutating func replay(_ entry: JournalEntry, byteCount: Int = 0) -> Bool {
    let restored = lastRestored.take()
    switch entry {
    case .header, .compacted, .seal: return true
    case .task(let task): return restore(task, byteCount: byteCount)
    case .begin(let id): return replayAttemptStart(of: id, isRestored: id == restored)
    case .memory(let id, let name, let value):
      guard id == restored, let slot = slot(of: id) else { return false }
      setMemory(value, named: name, of: slot)
      lastRestored = id
      return true
    case .value(let name, let bytes), .change(.setValue(let name, _, let bytes)):
      values.setValue(
        named: name,
        to: bytes.map { StoredValues.Value(bytes: $0, byteCount: byteCount) }
      )
      return true
    case .interruption:
      interruptStartedAttempts()
      return true
    case .change(.insert(let record, let policy)):
      return insertAsEarlierVersion(record, onDuplicate: policy, byteCount: byteCount)
    case .addition(let record, let addition): return add(record, as: addition, byteCount: byteCount)
    case .supersession(let change):
      guard case .move(_, let move) = change, let slot = leasedSlot(of: change),
        let successor = successor(of: slot)
      else { return false }
      supersede(slot, by: successor, after: move)
      return true
    case .change(let change): return applyAsWritten(change, excluding: [])
    case .restart(let change, let excluded): return applyAsWritten(change, excluding: excluded)
    }
  }

  /// Applies a change with the decision that its line records, instead of deciding again.
  private mutating func applyAsWritten(_ change: TaskChange, excluding excluded: [TaskID]) -> Bool {
    guard let change = withCurrentLease(change) else { return false }
    let staged = stageAsWritten(change, excluding: excluded)
    commit(staged)
    // A completion has a line even if it had no effect, because it came too late. So it is never a
    // contradiction.
    if case .memory(.complete) = change { return true }
    return staged.isKept
  }

  /// Stages a change with the decision that its line records, instead of deciding again.
  ///
  /// If a retried task's successor had taken its place, the line would say so. So the task waits
  /// again, even if it has a successor. A restart does not restart the tasks in `excluded`,
  /// although they were cancelled because of the restarted task.
  private mutating func stageAsWritten(
    _ change: TaskChange,
    excluding excluded: [TaskID]
  ) -> StagedChange {
    switch change {
    case .move(_, let move) where move.yieldsToSuccessor:
      stage(change, of: leasedSlot(of: change))
    case .move(let target, let move) where move.takesKey:
      stageRestart(change, of: slot(of: target) { _ in true }, excluding: excluded)
    default: stage(change)
    }
  }

  /// The slot of the task that a change's lease names; `nil` if the task is not leased.
  private func leasedSlot(of change: TaskChange) -> Int? {
    guard let id = change.lease?.id, let slot = slot(of: id), case .leased = entries[slot].place
    else { return nil }
    return slot
  }

  /// Makes all leased tasks available again, each with one more interruption, and returns their
  /// number.
  ///
  /// This is called when a file is opened, because the leases belong to a process that has ended.
  @discardableResult
  mutating func interruptLeased() -> Int {
    begun = []
    guard stateCounts[.running] > 0 else { return 0 }
    return entries.slots.reduce(0) { $0 + (interrupt($1) ? 1 : 0) }
  }

  /// Interrupts all leased tasks, like ``interruptLeased()``, but without visiting every task.
  ///
  /// While a file is read, the list `begun` contains every leased task. A file may contain many
  /// interruptions and many tasks, so visiting every task each time would be slow.
  private mutating func interruptStartedAttempts() {
    for slot in begun { _ = interrupt(slot) }
    begun = []
  }

  /// If a task is leased, makes it available again, with one more interruption.
  ///
  /// - Returns: Whether the task was leased.
  private mutating func interrupt(_ slot: Int) -> Bool {
    guard case .leased = entries[slot].place else { return false }
    entries[slot].record.countInterruption()
    setState(.waiting, of: slot)
    putInList(slot)
    return true
  }

  /// Adds a task to `begun` and, if that list has become much too long, removes the tasks that are
  /// no longer leased.
  private mutating func recordAttemptStart(of slot: Int) {
    begun.append(slot)
    guard begun.count > 2 * stateCounts[.running] + 1024 else { return }
    var seen: Set<Int> = []
    begun.removeAll { slot in
      guard case .leased = entries[slot].place else { return true }
      return !seen.insert(slot).inserted
    }
  }

  /// Adds a task that a compaction has written.
  private mutating func restore(_ task: KeptTask, byteCount: Int) -> Bool {
    var role: UniqueKeyRole?
    if let key = task.record.uniqueKey, !task.hasLostKey {
      guard !task.isOld || holderUnderEarlierRules(ofKey: key) == nil else { return false }
      if !task.record.state.isFinished { role = task.record.keyRole ?? .holder }
    }
    guard let slot = addEntry(of: task.record, role: role, orderNumber: task.orderNumber) else {
      return false
    }
    let isDisplaced = !task.isOld && entries[slot].record.isDisplaced
    entries[slot].hasLostKey = task.hasLostKey && !isDisplaced
    rejoinGraph(slot)
    entries[slot].position = task.position
    addBytes(byteCount, to: slot)
    countAndPutInList(slot)
    lastRestored = task.record.id
    return true
  }

  /// Adds a task with the result that its line records, such as a role for the unique key.
  private mutating func add(_ record: TaskRecord, as addition: Addition, byteCount: Int) -> Bool {
    if case .takenOver(let id) = addition {
      guard let slot = slot(of: id), entries[slot].record.isTwin(of: record),
        entries[slot].record.keyRole != nil,
        entries[slot].record.state != .running
      else { return false }
      commit(StagedChange(.replacement(record, slot: slot)))
      return true
    }
    let role = addition == .successor ? UniqueKeyRole.successor : .holder
    let hasRole = record.uniqueKey != nil && !record.state.isFinished
    if hasRole, let key = record.uniqueKey {
      for other in displaceExpired(role, ofKey: key, for: record) {
        completeDisplacement(of: other)
      }
    }
    guard let slot = addEntry(of: record, role: hasRole ? role : nil) else { return false }
    addBytes(byteCount, to: slot)
    joinGraph(slot)
    joinBatch(slot)
    promoteIfKeyHasNoHolder(slot)
    countAndPutAtEndOfList(slot)
    return true
  }

  /// Adds a task that an earlier version of this library has written, by that version's rules for
  /// unique keys.
  ///
  /// In that version, only one task held a key, whatever its name, and even after it had ended.
  private mutating func insertAsEarlierVersion(
    _ record: TaskRecord,
    onDuplicate policy: UniquePolicy,
    byteCount: Int
  ) -> Bool {
    guard slot(of: record.id) == nil else { return false }
    if let key = record.uniqueKey, let holder = holderUnderEarlierRules(ofKey: key) {
      guard policy == .replace else { return false }
      if case .leased = entries[holder].place { loseKey(holder) } else { remove(holder) }
    }
    let role: UniqueKeyRole? =
      record.uniqueKey == nil || record.state.isFinished ? nil : .holder
    guard let slot = addEntry(of: record, role: role) else { return false }
    addBytes(byteCount, to: slot)
    // The new task may belong to a batch whose other tasks were added earlier.
    joinGraph(slot)
    joinBatch(slot)
    countAndPutAtEndOfList(slot)
    return true
  }

  /// The slot of the task that holds a key by the rules of earlier versions.
  private func holderUnderEarlierRules(ofKey key: String) -> Int? {
    for roles in keys.roles(of: key) { if let holder = roles.holder { return holder } }
    return keys.withoutRole[ExactText(key)]?.first { !entries[$0].hasLostKey }
  }

  /// Adds a task with a role for its unique key; the role is `nil` if the task has none.
  ///
  /// - Returns: The task's slot; `nil` if its ID or the role is taken.
  private mutating func addEntry(
    of record: TaskRecord,
    role: UniqueKeyRole?,
    orderNumber: UInt64? = nil
  ) -> Int? {
    guard slot(of: record.id) == nil else { return nil }
    let slot = insertEntry(of: record)
    setOrderNumber(of: slot, to: orderNumber)
    // With this cutoff, tasks are added to the ready tasks at once. Most tasks are available when
    // they are created.
    cutoff = latestDate
    guard let key = record.uniqueKey else { return slot }
    guard let role else {
      keys.addTaskWithoutRole(slot, key: key)
      recordRecentSuccess(of: slot, key: key)
      return slot
    }
    let roles = keys[key, nameLane(of: slot)]
    guard (role == .holder ? roles.holder : roles.successor) == nil else {
      remove(slot)
      return nil
    }
    assign(role, ofKey: key, to: slot)
    return slot
  }

  /// Leases a task, because its line says that an attempt started.
  ///
  /// `isRestored` says whether the previous line restored the task. If so, the attempt was under
  /// way when the file was compacted.
  private mutating func replayAttemptStart(of id: TaskID, isRestored: Bool) -> Bool {
    guard let slot = slot(of: id) else { return false }
    switch entries[slot].place {
    case .leased:
      // The process that started the previous attempt has ended during it.
      entries[slot].record.countInterruption()
      _ = lease(slot)
      return true
    case .held where !mayHaveStarted(slot, isRestored: isRestored):
      return false
    case .waiting, .ready, .held:
      _ = lease(slot)
      makeHead(slot)
      recordAttemptStart(of: slot)
      return true
    case .staged, .suspended, .parked, .paused, .finished:
      return false
    }
  }

  /// Returns a change with the current lease of its task instead of the one in the line; `nil` if
  /// the change needs a lease, and the task is not leased.
  private func withCurrentLease(_ change: TaskChange) -> TaskChange? {
    func current(_ id: TaskID) -> Lease? {
      guard let slot = slot(of: id), case .leased(let token) = entries[slot].place else {
        return nil
      }
      return Lease(id: id, token: token)
    }
    // The line of a change that a caller makes does not say whether the task was leased.
    func current(_ target: TaskTarget) -> TaskTarget? {
      if let lease = current(target.id) { return .claimed(lease) }
      if case .unclaimed = target { return target }
      return nil
    }
    switch change {
    case .move(let target, var move):
      if let date = move.availableDate, move.failure == nil, !move.takesKey {
        move.countedFrom = record(of: target.id)?
          .origin(fromStored: move.countedFrom, ofAvailableDate: date)
      }
      return current(target).map { .move($0, move) }
    case .end(let target, let end): return current(target).map { .end($0, end) }
    case .extend(let lease, let duration):
      return current(lease.id).map { .extend($0, for: duration) }
    case .memory(.remember(let lease, let name, let value)):
      return current(lease.id).map { .remember($0, named: name, value: value) }
    case .memory(.suspend(let lease, let date, let names, let origin)):
      return current(lease.id).map {
        .suspend($0, until: date, awaiting: names, countedFrom: origin)
      }
    case .insert, .update, .remove, .memory(.complete), .broad, .setValue, .command: return change
    }
  }
}
