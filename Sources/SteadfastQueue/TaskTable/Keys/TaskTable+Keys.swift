import SystemFoundation

/// Unique keys, which identify duplicates among the tasks with one name.
///
/// Of the unfinished tasks with the same name and key, at most two have a role: the holder, which
/// runs now or next, and the successor, which waits until the holder has ended.
extension TaskTable {
  /// What to do with a new task that has a unique key.
  private enum KeyDecision {
    case add(UniqueKeyRole)
    /// The task in this slot gets the payload and the options of the new task.
    case replace(Int)
    /// The new task is not added, because it is a duplicate of the task in this slot.
    case duplicate(Int)
    /// The new task is not added, because a staged change may still change the task in this slot.
    case busy(Int)
  }

  // MARK: Staging

  mutating func stageInsertion(of record: TaskRecord, _ policy: UniquePolicy) -> StagedChange {
    // Keep this consistent with `insertAtOnce(_:)`.
    if let slot = slot(of: record.id) {
      // A task that is still being stored does not count as stored.
      let isThere = entries[slot].place != .staged && record.isStored(as: entries[slot].record)
      return isThere ? .sentBefore : .identityTaken
    }
    guard let key = record.uniqueKey else {
      if let refusal = refusal(of: record) { return refusal }
      return StagedChange(.insertion(slot: insertNewEntry(of: record)))
    }
    if record.state.isFinished {
      let slot = insertNewEntry(of: record)
      keys.addTaskWithoutRole(slot, key: key)
      recordRecentSuccess(of: slot, key: key)
      return StagedChange(.insertion(slot: slot))
    }
    switch keyDecision(on: record, key, policy) {
    case .add(let role):
      if let refusal = refusal(of: record) { return refusal }
      // Expired tasks lose their roles first, because the insertion may bind one of them: the task
      // that waits for the new task's batch.
      let (others, slot) = (
        displaceExpired(role, ofKey: key, for: record), insertNewEntry(of: record)
      )
      assign(role, ofKey: key, to: slot)
      let isNext = role == .successor
      return StagedChange(.insertion(slot: slot, isSuccessor: isNext, displaced: others))
    case .replace(let slot):
      reserve(slot)
      let id = entries[slot].record.id
      return StagedChange(.replacement(record, slot: slot), outcome: .replaced(id))
    case .duplicate(let slot): return .duplicate(of: entries[slot].record.id, policy)
    // The batch is refused, so that the caller can try again with the whole batch.
    case .busy(let slot): return .duplicate(of: entries[slot].record.id, .reject)
    }
  }

  /// Inserts a task without a unique key; faster than staging and committing it.
  mutating func insertAtOnce(_ record: TaskRecord) -> ChangeOutcome {
    guard slot(of: record.id) == nil, !record.hasPrerequisites else {
      return commit(stageInsertion(of: record, .keep))
    }
    commitInsertion(of: insertNewEntry(of: record))
    return .done
  }

  private mutating func insertNewEntry(of record: TaskRecord) -> Int {
    let slot = insertEntry(of: record)
    // Most tasks neither wait for other tasks nor are waited for.
    guard record.hasPrerequisites || !graph.isEmpty else { return slot }
    setOrderNumber(of: slot)
    joinGraph(slot)
    if entries[slot].isAwaited { bindFollower(of: slot) }
    return slot
  }

  private func keyDecision(
    on record: TaskRecord,
    _ key: String,
    _ policy: UniquePolicy
  ) -> KeyDecision {
    guard let lane = lanes.lane(of: record.name, in: record.queue) else { return .add(.holder) }
    let roles = roles(for: record, key: key, lane: lane)
    guard let last = roles.last else {
      if policy != .replace, let recent = roles.recent, isDuplicate(record, of: recent) {
        return .duplicate(recent)
      }
      return .add(.holder)
    }
    switch policy {
    case .reject, .join: return .duplicate(roles.holder ?? last)
    case .keep, .replace: break
    }
    // A holder whose end is only staged still counts as running. The new task becomes its successor
    // until that end is committed.
    let isRunning = if case .leased = entries[last].place { true } else { false }
    if roles.successor == nil, isRunning, policy == .replace || !isDuplicate(record, of: last) {
      return .add(.successor)
    }
    if policy == .keep { return .duplicate(last) }
    // Work that the task has started must not continue with another payload.
    if roles.successor == nil, entries[last].remembers { return .add(.successor) }
    return hasPendingChange(last) ? .busy(last) : .replace(last)
  }

  /// Returns whether a new task is a duplicate of the task in this slot, even if that task is
  /// running or has succeeded.
  private func isDuplicate(_ new: TaskRecord, of slot: Int) -> Bool {
    entries[slot].record.isDeduplicating(at: new.createdDate)
  }

  /// Stages the retry of a task or, if the task has a successor, its replacement by the successor.
  mutating func stageRetry(
    _ change: TaskChange,
    _ move: TaskMove,
    of slot: Int?
  ) -> StagedChange {
    // The task is retried, although it has a successor, in these cases: other tasks wait for it,
    // its memory contains unfinished work, or the successor is being changed or will have expired.
    guard let slot, !mayAffectOthers(slot), !willRemember(slot),
      let successor = successor(of: slot), !entries[successor].isReserved,
      !entries[successor].isPinned,
      move.availableDate.map(entries[successor].record.hasExpired) != true
    else { return stage(change, of: slot) }
    entries[slot].isFailing = true
    reserve(slot)
    reserve(successor)
    return StagedChange(
      .supersession(move, slot: slot, successor: successor),
      outcome: .superseded(by: entries[successor].record.id)
    )
  }

  /// Returns the slot of the successor of a task, if the task is the holder of its key.
  func successor(of slot: Int) -> Int? {
    guard let key = entries[slot].record.uniqueKey else { return nil }
    let roles = keys[key, nameLane(of: slot)]
    return roles.holder == slot ? roles.successor : nil
  }

  /// Stages the restart of a task.
  ///
  /// While a file is read, `excluded` contains the tasks that, according to the file, are not
  /// restarted along with this task. Otherwise it is `nil`, and the table decides which ones these
  /// are.
  mutating func stageRestart(
    _ change: TaskChange,
    of slot: Int?,
    excluding excluded: [TaskID]? = nil
  ) -> StagedChange {
    guard let slot, takesKeyAtRestart(slot) else { return stage(change, of: slot) }
    if !reclaimKey(of: slot), let key = entries[slot].record.uniqueKey {
      let roles = keys[key, nameLane(of: slot)]
      if let other = roles.holder ?? roles.last { return .duplicate(of: entries[other].id, .keep) }
    }
    return stageWithDependents(change, of: slot, excluding: excluded)
  }

  /// Makes a task that is to be restarted the holder of its unique key, unless another task has a
  /// role for the key.
  ///
  /// - Returns: `false` if another task has a role for the key; `true` also if there is no key.
  mutating func reclaimKey(of slot: Int) -> Bool {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return true }
    let lane = nameLane(of: slot)
    guard let other = keys[key, lane].last else {
      keys[key, lane].holder = slot
      return true
    }
    return other == slot
  }

  /// Undoes ``reclaimKey(of:)``, unless the task was restarted.
  mutating func giveUpReclaimedKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey, entries[slot].record.keyRole == nil,
      keys[key, nameLane(of: slot)].holder == slot
    else { return }
    keys[key, nameLane(of: slot)].holder = nil
  }

  /// Returns the decision that was made when a change was staged, if the file must record it.
  func decision(on staged: StagedChange) -> Decision? {
    switch staged.effect {
    case .insertion(_, let isSuccessor, _): isSuccessor ? .addition(.successor) : nil
    case .replacement(_, let slot): .addition(.takenOver(by: entries[slot].record.id))
    case .supersession: .supersession
    case .change(.move(_, let move), let slot) where move.takesKey && entries[slot].isAwaited:
      restartDecision(graph.tasksExcluded(fromRestartOf: entries[slot].id))
    case .change, .memory, .broadChange, .value, nil: nil
    }
  }

  private func restartDecision(_ excluded: [TaskID]) -> Decision? {
    excluded.isEmpty ? nil : .restart(excluding: excluded)
  }

  /// Returns the index of the main lane of a task's name, which identifies the name.
  func nameLane(of slot: Int) -> Int { lanes[entries[slot].lane].main }

  // MARK: Roles

  /// Gives a task a role for a unique key; no other task may have that role.
  mutating func assign(_ role: UniqueKeyRole, ofKey key: String, to slot: Int) {
    entries[slot].record.keyRole = role
    switch role {
    case .holder: keys[key, nameLane(of: slot)].holder = slot
    case .successor: keys[key, nameLane(of: slot)].successor = slot
    }
  }

  /// Makes a successor the holder, if its key no longer has a holder.
  mutating func promoteIfKeyHasNoHolder(_ slot: Int) {
    guard entries[slot].record.keyRole == .successor, let key = entries[slot].record.uniqueKey,
      keys[key, nameLane(of: slot)].holder == nil
    else { return }
    promote(slot, toHolderOf: key)
  }

  private mutating func promote(_ slot: Int, toHolderOf key: String) {
    keys[key, nameLane(of: slot)].successor = nil
    assign(.holder, ofKey: key, to: slot)
    // A reserved task returns to its list when its staged change is rolled back.
    guard !entries[slot].isReserved, entries[slot].place != .staged else { return }
    if entries[slot].record.state.isClaimable { putInList(slot) }
  }

  /// Makes each successor whose key has no holder the holder.
  ///
  /// Such successors exist only in a file that has lost lines, or that another program has written.
  mutating func promoteSuccessorsWithoutHolder() {
    for (key, successor) in keys.successorsWithoutHolder { promote(successor, toHolderOf: key) }
  }

  /// Removes the role of a task that ends or is removed; if the task was the holder, its successor
  /// becomes the holder.
  mutating func removeRole(of slot: Int) {
    guard entries[slot].record.keyRole != nil, let key = entries[slot].record.uniqueKey else {
      return
    }
    entries[slot].record.keyRole = nil
    let lane = nameLane(of: slot)
    if keys[key, lane].successor == slot { return keys[key, lane].successor = nil }
    keys[key, lane].holder = nil
    // If the successor's insertion is not committed yet, the commit makes it the holder.
    if let next = keys[key, lane].successor, entries[next].place != .staged {
      promote(next, toHolderOf: key)
    }
  }

  /// Removes the role of an ended task, which can still be found by its unique key.
  mutating func retainKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { keys.addTaskWithoutRole(slot, key: key) }
    removeRole(of: slot)
    recordRecentSuccess(of: slot, key: key)
  }

  /// Records that a task with a unique key has succeeded, if it prevents duplicates for some time
  /// after its success.
  mutating func recordRecentSuccess(of slot: Int, key: String) {
    guard isRecent(slot) else { return }
    let lane = nameLane(of: slot)
    guard let other = keys[key, lane].recent, other != slot else {
      return keys[key, lane].recent = slot
    }
    let isLater = isUniqueForLess(other, than: slot)
    keys[key, lane].recent = isLater ? slot : other
    keys.addLessRecent(isLater ? other : slot, key: key, lane: lane)
  }

  private func isRecent(_ slot: Int) -> Bool {
    entries[slot].record.state == .succeeded && entries[slot].record.uniqueUntil != nil
  }

  /// Returns whether a task prevents duplicates for a shorter time than another task does.
  private func isUniqueForLess(_ slot: Int, than other: Int) -> Bool {
    let (left, right) = (entries[slot].record, entries[other].record)
    if left.uniqueUntil != right.uniqueUntil {
      return left.uniqueUntil ?? .distantPast < right.uniqueUntil ?? .distantPast
    }
    return left.id < right.id
  }

  /// Makes a restarted task the holder of its unique key.
  mutating func holdKeyAgain(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return }
    forgetTaskWithoutRole(slot, key: key)
    assign(.holder, ofKey: key, to: slot)
  }

  /// Makes it impossible to find a removed task by its unique key.
  mutating func forgetKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { return removeRole(of: slot) }
    forgetTaskWithoutRole(slot, key: key)
  }

  mutating func forgetTaskWithoutRole(_ slot: Int, key: String) {
    keys.removeTaskWithoutRole(slot, key: key)
    let lane = nameLane(of: slot)
    keys.removeLessRecent(slot, key: key, lane: lane)
    guard keys[key, lane].recent == slot else { return }
    keys[key, lane].recent = keys.lessRecentTasks(key: key, lane: lane).filter(isRecent)
      .max { isUniqueForLess($0, than: $1) }
  }

  /// Takes the unique key from an unfinished task, as earlier versions of this package did.
  mutating func loseKey(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { keys.addTaskWithoutRole(slot, key: key) }
    entries[slot].hasLostKey = true
    removeRole(of: slot)
  }
}

/// Expired tasks, which lose their unique keys to new tasks.
extension TaskTable {
  /// Returns whether a task has expired by a date, and no staged change can prevent that.
  private func hasExpired(_ slot: Int, by date: Date) -> Bool {
    entries[slot].record.hasExpired(by: date) && entries[slot].record.state != .running
      && !hasPendingChange(slot)
  }

  /// Returns the roles for the key of a new task, leaving out expired tasks.
  func roles(for record: TaskRecord, key: String, lane: Int) -> UniqueKeys.Roles {
    var roles = keys[key, lane]
    func lasting(_ slot: Int?) -> Int? {
      slot.flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
    }
    roles.holder = lasting(roles.holder)
    roles.successor = lasting(roles.successor)
    return roles
  }

  /// Takes a role from the tasks that have it, if they have expired, so that a new task can have
  /// it.
  ///
  /// The expired tasks are reserved until the new task's insertion is committed or rolled back.
  ///
  /// - Returns: The slots of the expired tasks.
  mutating func displaceExpired(
    _ role: UniqueKeyRole,
    ofKey key: String,
    for record: TaskRecord
  ) -> [Int] {
    guard let lane = lanes.lane(of: record.name, in: record.queue) else { return [] }
    let roles = keys[key, lane]
    let others = (role == .holder ? [roles.holder, roles.successor] : [roles.successor])
      .compactMap(\.self)
    guard others.allSatisfy({ hasExpired($0, by: record.createdDate) }) else { return [] }
    for slot in others {
      reserve(slot)
      keys.addTaskWithoutRole(slot, key: key)
      setRoleOwner(of: slot, to: nil)
    }
    return others
  }

  /// Removes the role of an expired task, after the new task is stored.
  mutating func completeDisplacement(of slot: Int) {
    entries[slot].record.keyRole = nil
    endReservation(of: slot)
  }

  /// Gives an expired task its role back, because the new task could not be stored.
  mutating func undoDisplacement(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keys.removeTaskWithoutRole(slot, key: key)
    setRoleOwner(of: slot, to: slot)
    endReservation(of: slot)
    // The holder may have ended in the meantime.
    promoteIfKeyHasNoHolder(slot)
  }

  /// Gives the role of a task to another task, or to none if `other` is `nil`, without changing the
  /// task's record.
  private mutating func setRoleOwner(of slot: Int, to other: Int?) {
    guard let key = entries[slot].record.uniqueKey else { return }
    switch entries[slot].record.keyRole {
    case .holder: keys[key, nameLane(of: slot)].holder = other
    case .successor: keys[key, nameLane(of: slot)].successor = other
    case nil: break
    }
  }

  /// Returns whether a task has lost its role because it had expired.
  func isDisplaced(_ slot: Int) -> Bool {
    !entries[slot].hasLostKey && entries[slot].record.isDisplaced
  }

  /// Returns whether a restart of a task makes the task the holder of its key, if it has a key.
  func takesKeyAtRestart(_ slot: Int) -> Bool {
    entries[slot].record.state.isFinished || isDisplaced(slot)
  }
}

/// The tasks with each unique key, by slot.
///
/// A key belongs to a name, which is identified by the index of its main lane. For one key and one
/// name, there is at most one holder and at most one successor. Ended tasks have no role, but can
/// be found by their keys. A role is assigned when a change is staged.
struct UniqueKeys: Sendable {
  /// The tasks with a role for one key and one name.
  struct Roles: Sendable {
    let lane: Int
    var holder: Int?
    var successor: Int?
    /// The succeeded task that prevents duplicates for the longest time; `nil` if none does.
    var recent: Int?

    /// The successor or, if there is none, the holder.
    var last: Int? { successor ?? holder }
    var isEmpty: Bool { holder == nil && successor == nil && recent == nil }
  }

  /// The tasks with one key.
  private struct Tasks: Sendable {
    // Most keys belong to a single name. Only keys of several names need a dictionary.
    private var first: Roles
    /// The roles for the lanes other than the lane of `first`.
    private var others: [Int: Roles] = [:]

    init(_ first: Roles) { self.first = first }

    var isEmpty: Bool { first.isEmpty && others.isEmpty }

    /// The roles for each name, computed lazily.
    var all: some Collection<Roles> {
      [[first.lane: first], others].lazy.flatMap(\.values).filter { !$0.isEmpty }
    }

    subscript(lane: Int) -> Roles {
      get { first.lane == lane ? first : others[lane] ?? Roles(lane: lane) }
      set {
        if first.lane == lane || first.isEmpty && others[lane] == nil {
          first = newValue
        } else {
          others[lane] = newValue.isEmpty ? nil : newValue
        }
      }
    }
  }

  private var tasks: [ExactText: Tasks] = [:]
  /// For each key, the tasks that have no role.
  private(set) var withoutRole: [ExactText: Set<Int>] = [:]
  /// For each key and name, other succeeded tasks that prevent duplicates; one of them becomes
  /// `recent` when the current one is removed.
  ///
  /// The current `recent` task may be among them.
  private var lessRecent: [KeyOfName: Set<Int>] = [:]

  private struct KeyOfName: Hashable {
    let key: ExactText
    let lane: Int
  }

  /// The roles for a key and a name.
  subscript(key: String, lane: Int) -> Roles {
    get { tasks[ExactText(key)]?[lane] ?? Roles(lane: lane) }
    // The roles are changed in place, because many names may share a key, and a copy would contain
    // the roles for all of them. The key is hashed only once.
    _modify {
      let key = ExactText(key)
      if let index = tasks.index(forKey: key) {
        yield &tasks.values[index][lane]
        if tasks.values[index].isEmpty { tasks.remove(at: index) }
      } else {
        var roles = Roles(lane: lane)
        yield &roles
        if !roles.isEmpty { tasks[key] = Tasks(roles) }
      }
    }
  }

  /// Returns the roles for a key, one element for each name.
  func roles(of key: String) -> some Collection<Roles> {
    // A key without tasks has no roles either.
    (tasks[ExactText(key)] ?? Tasks(Roles(lane: 0))).all
  }

  /// The keys for which any task has a role, or is `recent`.
  var keys: [String] { tasks.keys.map(\.text) }

  /// The successors whose key has no holder, each with its key.
  var successorsWithoutHolder: [(key: String, slot: Int)] {
    tasks.flatMap { key, tasks in
      tasks.all.compactMap { roles in
        roles.holder == nil ? roles.successor.map { (key.text, $0) } : nil
      }
    }
  }

  /// Returns the slots of all tasks that have one of these keys.
  func slots(with keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      roles(of: key).flatMap { [$0.holder, $0.successor].compactMap(\.self) }
        + (withoutRole[ExactText(key)].map(Array.init) ?? [])
    }
  }

  /// Records that a task with a key has no role, or will have none if a staged change is stored.
  mutating func addTaskWithoutRole(_ slot: Int, key: String) {
    withoutRole[ExactText(key), default: []].insert(slot)
  }

  mutating func removeTaskWithoutRole(_ slot: Int, key: String) {
    let key = ExactText(key)
    withoutRole[key]?.remove(slot)
    if withoutRole[key]?.isEmpty == true { withoutRole[key] = nil }
  }

  /// Returns the other succeeded tasks with a key and a name that prevent duplicates.
  func lessRecentTasks(key: String, lane: Int) -> Set<Int> {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane)] ?? []
  }

  mutating func addLessRecent(_ slot: Int, key: String, lane: Int) {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane), default: []].insert(slot)
  }

  mutating func removeLessRecent(_ slot: Int, key: String, lane: Int) {
    guard !lessRecent.isEmpty else { return }
    let key = KeyOfName(key: ExactText(key), lane: lane)
    lessRecent[key]?.remove(slot)
    if lessRecent[key]?.isEmpty == true { lessRecent[key] = nil }
  }
}
