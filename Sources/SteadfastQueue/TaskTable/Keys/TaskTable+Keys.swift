import SystemFoundation

/// Unique keys: the holder, the successor, and their effect on a new task.
extension TaskTable {
  /// The decision about a new task with a unique key.
  private enum KeyDecision {
    case add(UniqueKeyRole)
    /// The task in this slot adopts the payload and the options of the new task.
    case replace(Int)
    /// The task in this slot is returned, and the new task is not added.
    case duplicate(Int)
    /// It is not decided yet what happens to the task in this slot.
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
      // The order matters: the insertion may bind one of the displaced tasks, if that is the
      // follower of the new task's batch.
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
    // Most tasks wait for no other task, and no other task waits for them.
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
    // If the end of the holder's attempt is staged, the holder still counts as running, and the new
    // task becomes its successor until that end is committed.
    let isRunning = if case .leased = entries[last].place { true } else { false }
    if roles.successor == nil, isRunning, policy == .replace || !isDuplicate(record, of: last) {
      return .add(.successor)
    }
    if policy == .keep { return .duplicate(last) }
    // Work that the task has started must not continue with another payload.
    if roles.successor == nil, entries[last].remembers { return .add(.successor) }
    return isInDoubt(last) ? .busy(last) : .replace(last)
  }

  /// Returns whether a new task is a duplicate of the task in this slot, even if the latter is
  /// running or has succeeded.
  private func isDuplicate(_ new: TaskRecord, of slot: Int) -> Bool {
    entries[slot].record.isDeduplicating(at: new.createdDate)
  }

  /// Stages the retry of a task or, if it has a successor, its replacement by the successor.
  mutating func stageRetry(_ change: TaskChange, of slot: Int?, at date: Date) -> StagedChange {
    // If another change to the successor is staged, or if the successor will have expired, both
    // tasks wait. If other tasks wait for the holder, the holder stays, because they named it. If
    // the holder remembers something, it stays to finish the work that it started.
    guard let slot, !concernsOthers(slot), !willRemember(slot),
      let successor = successor(of: slot), !entries[successor].isReserved,
      !entries[successor].isPinned, !entries[successor].record.hasExpired(by: date)
    else { return stage(change, of: slot) }
    entries[slot].isFailing = true
    reserve(slot)
    reserve(successor)
    return StagedChange(
      .supersession(change, slot: slot, successor: successor),
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
  /// `excluded` contains the tasks that a line of the file says were not restarted along with the
  /// task; it is `nil` if the table decides which ones these are.
  mutating func stageRestart(
    _ change: TaskChange,
    of slot: Int?,
    excluding excluded: [TaskID]? = nil
  ) -> StagedChange {
    guard let slot, takesKeyAtRestart(slot) else { return stage(change, of: slot) }
    if !takeKeyAgain(slot), let key = entries[slot].record.uniqueKey {
      let roles = keys[key, nameLane(of: slot)]
      if let other = roles.holder ?? roles.last { return .duplicate(of: entries[other].id, .keep) }
    }
    return stageForOthers(change, of: slot, excluding: excluded)
  }

  /// Makes a task without a role the holder of its unique key, if the task has a key and no other
  /// task has a role for it.
  ///
  /// - Returns: `false` if another task has a role for the key.
  mutating func takeKeyAgain(_ slot: Int) -> Bool {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return true }
    let lane = nameLane(of: slot)
    guard let other = keys[key, lane].last else {
      keys[key, lane].holder = slot
      return true
    }
    return other == slot
  }

  /// Releases the role that staging has reserved for a task without a role.
  mutating func giveUpRole(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey, entries[slot].record.keyRole == nil,
      keys[key, nameLane(of: slot)].holder == slot
    else { return }
    keys[key, nameLane(of: slot)].holder = nil
  }

  /// Returns what staging has decided about a change, if the file must record the decision.
  func decision(on staged: StagedChange) -> Decision? {
    switch staged.effect {
    case .insertion(_, let isSuccessor, _): isSuccessor ? .addition(.successor) : nil
    case .replacement(_, let slot): .addition(.takenOver(by: entries[slot].record.id))
    case .supersession: .supersession
    case .change(.restart, let slot) where entries[slot].isAwaited:
      restartDecision(graph.tasksExcluded(fromRestartOf: entries[slot].id))
    case .change, .memory, .broadChange, .value, nil: nil
    }
  }

  private func restartDecision(_ excluded: [TaskID]) -> Decision? {
    excluded.isEmpty ? nil : .restart(excluding: excluded)
  }

  /// Returns the lane that represents the name of a task.
  func nameLane(of slot: Int) -> Int { lanes[entries[slot].lane].main }

  // MARK: Roles

  /// Gives a task a role that no other task has.
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
    // If a staged change reserves the task, it is lined up when that change is rolled back.
    guard !entries[slot].isReserved, entries[slot].place != .staged else { return }
    if entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  /// Makes each successor whose key has no holder the holder.
  ///
  /// Such successors exist only in a file that has lost lines, or that another program has written.
  mutating func promoteSuccessorsWithoutHolder() {
    for (key, successor) in keys.successorsWithoutHolder { promote(successor, toHolderOf: key) }
  }

  /// Removes the role of a task that ends or leaves the table, and makes its successor the holder.
  mutating func removeRole(of slot: Int) {
    guard entries[slot].record.keyRole != nil, let key = entries[slot].record.uniqueKey else {
      return
    }
    entries[slot].record.keyRole = nil
    let lane = nameLane(of: slot)
    if keys[key, lane].successor == slot { return keys[key, lane].successor = nil }
    keys[key, lane].holder = nil
    // A successor whose insertion is not committed yet becomes the holder at its commit.
    if let next = keys[key, lane].successor, entries[next].place != .staged {
      promote(next, toHolderOf: key)
    }
  }

  /// Updates the unique key of a task that has ended and is retained.
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

  /// Makes a task without a role the holder of its key, because it waits again.
  mutating func holdKeyAgain(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return }
    forgetTaskWithoutRole(slot, key: key)
    assign(.holder, ofKey: key, to: slot)
  }

  /// Removes the unique key of a task that leaves the table.
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

  /// Removes the key of a task without ending the task, as earlier versions did.
  mutating func loseKey(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { keys.addTaskWithoutRole(slot, key: key) }
    entries[slot].hasLostKey = true
    removeRole(of: slot)
  }
}

/// Expired tasks, which lose their roles for a unique key to a new task.
extension TaskTable {
  /// Returns whether a task with a role has expired by a date, so that it won't be performed.
  ///
  /// A task that is being changed may get another expiry date, so it counts as not expired.
  private func hasExpired(_ slot: Int, by date: Date) -> Bool {
    entries[slot].record.hasExpired(by: date) && entries[slot].record.state != .running
      && !isInDoubt(slot)
  }

  /// Returns the roles for the key of a new task, without the roles that the new task may take from
  /// expired tasks.
  func roles(for record: TaskRecord, key: String, lane: Int) -> UniqueKeys.Roles {
    var roles = keys[key, lane]
    func lasting(_ slot: Int?) -> Int? {
      slot.flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
    }
    roles.holder = lasting(roles.holder)
    roles.successor = lasting(roles.successor)
    return roles
  }

  /// Makes a role available for a new task, if the tasks that have the role have expired.
  ///
  /// The expired tasks are reserved, and lose their roles when the insertion is committed.
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

  /// Removes the role of a displaced task, after the new task is stored.
  mutating func loseRole(_ slot: Int) {
    entries[slot].record.keyRole = nil
    endReservation(of: slot)
  }

  /// Restores the role of a displaced task, if the new task could not be stored.
  mutating func regainRole(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keys.removeTaskWithoutRole(slot, key: key)
    setRoleOwner(of: slot, to: slot)
    endReservation(of: slot)
    // The holder may have ended in the meantime.
    promoteIfKeyHasNoHolder(slot)
  }

  /// Gives the role of a task to another task, or to none, without changing the task's record.
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

/// The slots of the tasks that have each unique key.
///
/// A key belongs to a name, which is identified by its lane. For one key and one name, at most one
/// task is the holder, and at most one task is the successor. Ended tasks have no role, but are
/// found by their keys. A role is assigned when a change is staged.
struct UniqueKeys: Sendable {
  /// The tasks with a role for one key and one name.
  struct Roles: Sendable {
    let lane: Int
    var holder: Int?
    var successor: Int?
    /// Of the succeeded tasks that prevent duplicates, the task that does so for the longest time.
    var recent: Int?

    /// The successor or, if there is none, the holder.
    var last: Int? { successor ?? holder }
    var isEmpty: Bool { holder == nil && successor == nil && recent == nil }
  }

  /// The tasks of one key.
  private struct Tasks: Sendable {
    // Most keys belong to a single name, so only further names need a dictionary.
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
  /// The tasks of each key that have no role.
  private(set) var withoutRole: [ExactText: Set<Int>] = [:]
  /// The tasks of which one becomes the recent task of a key and a name when the present recent
  /// task leaves.
  ///
  /// The present recent task may be one of these tasks.
  private var lessRecent: [KeyOfName: Set<Int>] = [:]

  private struct KeyOfName: Hashable {
    let key: ExactText
    let lane: Int
  }

  /// The roles for a key and a name.
  subscript(key: String, lane: Int) -> Roles {
    get { tasks[ExactText(key)]?[lane] ?? Roles(lane: lane) }
    // This changes the roles in place, because the tasks of many names may share a key. It also
    // hashes the key only once.
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

  /// Returns the roles for a key, for each name.
  func roles(of key: String) -> some Collection<Roles> {
    // A key without tasks has no roles either.
    (tasks[ExactText(key)] ?? Tasks(Roles(lane: 0))).all
  }

  /// The keys that have a task with a role, or a recent task.
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

  /// Returns the tasks of which one becomes the recent task of a key and a name when the present
  /// recent task leaves.
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
