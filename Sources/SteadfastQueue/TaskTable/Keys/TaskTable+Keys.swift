import SystemFoundation

/// Unique keys: the holder, the successor, and their effect on a new task.
extension TaskTable {
  /// The decision about a new task with a unique key.
  private enum KeyDecision {
    case add(UniqueKeyRole)
    /// The task of this slot takes over the new one.
    case replace(Int)
    /// The task of this slot is returned instead of the new one.
    case duplicate(Int)
    /// The future of the task of this slot is still undecided.
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
      keys.addWithoutRole(slot, key)
      noteRecent(slot, key)
      return StagedChange(.insertion(slot: slot))
    }
    switch decision(on: record, key, policy) {
    case .add(let role):
      if let refusal = refusal(of: record) { return refusal }
      // The order matters: the new task may bind one of these tasks if it follows it.
      let (others, slot) = (displace(role, key, for: record), insertNewEntry(of: record))
      take(role, key, slot)
      let isNext = role == .successor
      return StagedChange(.insertion(slot: slot, isSuccessor: isNext, displaced: others))
    case .replace(let slot):
      reserve(slot)
      let id = entries[slot].record.id
      return StagedChange(.replacement(record, slot: slot), outcome: .replaced(id))
    case .duplicate(let slot): return .duplicate(of: entries[slot].record.id, policy)
    // The caller can try again, with the whole batch.
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
    // Most tasks wait for no others, and no others wait for them.
    guard record.hasPrerequisites || !graph.isEmpty else { return slot }
    setOrderNumber(of: slot)
    joinGraph(slot)
    if entries[slot].isAwaited { bindFollower(of: slot) }
    return slot
  }

  private func decision(
    on record: TaskRecord,
    _ key: String,
    _ policy: UniquePolicy
  ) -> KeyDecision {
    guard let lane = lanes.lane(of: record.name, in: record.queue) else { return .add(.holder) }
    let roles = roles(for: record, key, lane)
    guard let last = roles.last else {
      if policy != .replace, let recent = roles.recent, isSame(recent, record) {
        return .duplicate(recent)
      }
      return .add(.holder)
    }
    switch policy {
    case .reject, .join: return .duplicate(roles.holder ?? last)
    case .keep, .replace: break
    }
    // If the end of its attempt is staged, the new task is its successor until that is committed.
    let isRunning = if case .leased = entries[last].place { true } else { false }
    if roles.successor == nil, isRunning, policy == .replace || !isSame(last, record) {
      return .add(.successor)
    }
    if policy == .keep { return .duplicate(last) }
    // The work that it has started must not continue with another payload.
    if roles.successor == nil, entries[last].remembers { return .add(.successor) }
    return isInDoubt(last) ? .busy(last) : .replace(last)
  }

  /// Returns whether a new task duplicates the one of this slot, even if that one runs or
  /// succeeded.
  private func isSame(_ slot: Int, _ new: TaskRecord) -> Bool {
    entries[slot].record.isDeduplicating(on: new.createdDate)
  }

  /// Stages the retry of a task, or its replacement by its successor.
  mutating func stageRetry(_ change: TaskChange, of slot: Int?, at date: Date) -> StagedChange {
    // If another change to the successor is staged, or it will have expired, both tasks wait. If
    // others wait for the holder, it stays, so that they wait for the task that they named. If it
    // remembers something, it stays to finish the work that it started.
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

  /// The successor of a task that holds its key.
  func successor(of slot: Int) -> Int? {
    guard let key = entries[slot].record.uniqueKey else { return nil }
    let roles = keys[key, nameLane(of: slot)]
    return roles.holder == slot ? roles.successor : nil
  }

  /// Stages the restart of a task.
  ///
  /// `excluded` contains the tasks that were not restarted along with it according to a line of the
  /// file; it is `nil` if the table decides.
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

  /// Makes a task without a role the holder of its key, if it has one and the key is free.
  ///
  /// - Returns: `false` if another task has a role.
  mutating func takeKeyAgain(_ slot: Int) -> Bool {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return true }
    let lane = nameLane(of: slot)
    guard let other = keys[key, lane].last else {
      keys[key, lane].holder = slot
      return true
    }
    return other == slot
  }

  /// Releases the role that staging took for a task without one.
  mutating func giveUpRole(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey, entries[slot].record.keyRole == nil,
      keys[key, nameLane(of: slot)].holder == slot
    else { return }
    keys[key, nameLane(of: slot)].holder = nil
  }

  /// Returns the decision of staging about a change, if the file must record it.
  func decision(on staged: StagedChange) -> Decision? {
    switch staged.effect {
    case .insertion(_, let isSuccessor, _): isSuccessor ? .addition(.successor) : nil
    case .replacement(_, let slot): .addition(.takenOver(by: entries[slot].record.id))
    case .supersession: .supersession
    case .change(.restart, let slot) where entries[slot].isAwaited:
      restartDecision(graph.excluded(byRestartOf: entries[slot].id))
    case .change, .memory, .broadChange, .value, nil: nil
    }
  }

  private func restartDecision(_ excluded: [TaskID]) -> Decision? {
    excluded.isEmpty ? nil : .restart(excluding: excluded)
  }

  /// The lane that represents the name of a task.
  func nameLane(of slot: Int) -> Int { lanes[entries[slot].lane].main }

  // MARK: Roles

  /// Gives a new task a role that is free.
  mutating func take(_ role: UniqueKeyRole, _ key: String, _ slot: Int) {
    entries[slot].record.keyRole = role
    switch role {
    case .holder: keys[key, nameLane(of: slot)].holder = slot
    case .successor: keys[key, nameLane(of: slot)].successor = slot
    }
  }

  /// Makes a successor the holder if there is no longer one.
  mutating func takeFreeRole(_ slot: Int) {
    guard entries[slot].record.keyRole == .successor, let key = entries[slot].record.uniqueKey,
      keys[key, nameLane(of: slot)].holder == nil
    else { return }
    promote(slot, key)
  }

  private mutating func promote(_ slot: Int, _ key: String) {
    keys[key, nameLane(of: slot)].successor = nil
    take(.holder, key, slot)
    // A task that a staged change reserves is lined up if that change is rolled back.
    guard !entries[slot].isReserved, entries[slot].place != .staged else { return }
    if entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  /// Promotes each successor without a holder to the holder.
  ///
  /// Such successors exist only in a file that has lost lines, or that another program has written.
  mutating func promoteSuccessorsWithoutHolder() {
    for (key, successor) in keys.successorsWithoutHolder { promote(successor, key) }
  }

  /// Removes the role of a task that ends or leaves, and promotes its successor.
  mutating func leaveRole(_ slot: Int) {
    guard entries[slot].record.keyRole != nil, let key = entries[slot].record.uniqueKey else {
      return
    }
    entries[slot].record.keyRole = nil
    let lane = nameLane(of: slot)
    if keys[key, lane].successor == slot { return keys[key, lane].successor = nil }
    keys[key, lane].holder = nil
    // A successor whose insertion is not committed yet takes the role at its commit.
    if let next = keys[key, lane].successor, entries[next].place != .staged { promote(next, key) }
  }

  /// Records that a task has ended, and is retained.
  mutating func retainKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { keys.addWithoutRole(slot, key) }
    leaveRole(slot)
    noteRecent(slot, key)
  }

  /// Records that a task with a key has succeeded, if it prevents duplicates for a while.
  mutating func noteRecent(_ slot: Int, _ key: String) {
    guard isRecent(slot) else { return }
    let lane = nameLane(of: slot)
    guard let other = keys[key, lane].recent, other != slot else {
      return keys[key, lane].recent = slot
    }
    let isLater = isBefore(other, slot)
    keys[key, lane].recent = isLater ? slot : other
    keys.addLessRecent(isLater ? other : slot, key, lane)
  }

  private func isRecent(_ slot: Int) -> Bool {
    entries[slot].record.state == .succeeded && entries[slot].record.uniqueUntil != nil
  }

  /// Returns whether a task prevents duplicates for a shorter time than another.
  private func isBefore(_ slot: Int, _ other: Int) -> Bool {
    let (left, right) = (entries[slot].record, entries[other].record)
    if left.uniqueUntil != right.uniqueUntil {
      return left.uniqueUntil ?? .distantPast < right.uniqueUntil ?? .distantPast
    }
    return left.id < right.id
  }

  /// Makes a task without a role the holder of its key, because it waits again.
  mutating func holdKeyAgain(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey, !entries[slot].hasLostKey else { return }
    forgetWithoutRole(slot, key)
    take(.holder, key, slot)
  }

  /// Removes a task that leaves the table.
  mutating func forgetKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { return leaveRole(slot) }
    forgetWithoutRole(slot, key)
  }

  mutating func forgetWithoutRole(_ slot: Int, _ key: String) {
    keys.removeWithoutRole(slot, key)
    let lane = nameLane(of: slot)
    keys.removeLessRecent(slot, key, lane)
    guard keys[key, lane].recent == slot else { return }
    keys[key, lane].recent = keys.lessRecent(key, lane).filter(isRecent).max { isBefore($0, $1) }
  }

  /// Removes the key of a task without ending the task, as earlier versions did.
  mutating func loseKey(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if entries[slot].record.keyRole != nil { keys.addWithoutRole(slot, key) }
    entries[slot].hasLostKey = true
    leaveRole(slot)
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

  /// The roles for the key of a new task, without those that it may take from expired tasks.
  func roles(for record: TaskRecord, _ key: String, _ lane: Int) -> UniqueKeys.Roles {
    var roles = keys[key, lane]
    func lasting(_ slot: Int?) -> Int? {
      slot.flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
    }
    roles.holder = lasting(roles.holder)
    roles.successor = lasting(roles.successor)
    return roles
  }

  /// Makes a role available for a new task, if expired tasks have it.
  ///
  /// They are reserved, and lose their roles when the insertion is committed.
  mutating func displace(_ role: UniqueKeyRole, _ key: String, for record: TaskRecord) -> [Int] {
    guard let lane = lanes.lane(of: record.name, in: record.queue) else { return [] }
    let roles = keys[key, lane]
    let others = (role == .holder ? [roles.holder, roles.successor] : [roles.successor])
      .compactMap(\.self)
    guard others.allSatisfy({ hasExpired($0, by: record.createdDate) }) else { return [] }
    for slot in others {
      reserve(slot)
      keys.addWithoutRole(slot, key)
      setRole(of: slot, to: nil)
    }
    return others
  }

  /// Removes the role of a displaced task, after the new one is stored.
  mutating func loseRole(_ slot: Int) {
    entries[slot].record.keyRole = nil
    setFree(slot)
  }

  /// Restores the role of a displaced task, if the new one is not stored.
  mutating func regainRole(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keys.removeWithoutRole(slot, key)
    setRole(of: slot, to: slot)
    setFree(slot)
    // The holder may have ended in the meantime.
    takeFreeRole(slot)
  }

  /// Makes another task, or none, the owner of a task's role.
  private mutating func setRole(of slot: Int, to other: Int?) {
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

  /// Returns whether a restart of a task makes it the holder of its key, if it has one.
  func takesKeyAtRestart(_ slot: Int) -> Bool {
    entries[slot].record.state.isFinished || isDisplaced(slot)
  }
}

/// The slots of the tasks that have each unique key.
///
/// A key belongs to a name, which is identified by its lane. For one key and one name, at most one
/// task is the holder, and one the successor. Ended tasks have no role, but are found by their
/// keys. A role is assigned when a change is staged.
struct UniqueKeys: Sendable {
  /// The tasks with a role for one key and one name.
  struct Roles: Sendable {
    let lane: Int
    var holder: Int?
    var successor: Int?
    /// Of the succeeded tasks that still prevent duplicates, the one that does so longest.
    var recent: Int?

    /// The successor or, if there is none, the holder.
    var last: Int? { successor ?? holder }
    var isEmpty: Bool { holder == nil && successor == nil && recent == nil }
  }

  /// The tasks of one key.
  private struct Tasks: Sendable {
    // Most keys belong to a single name, so only other names need a dictionary.
    private var first: Roles
    /// The roles for other lanes than that of `first`.
    private var others: [Int: Roles] = [:]

    init(_ first: Roles) { self.first = first }

    var isEmpty: Bool { first.isEmpty && others.isEmpty }

    /// The roles for each name; O(1) until they are read.
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
  /// The candidates to become the recent task of a key and name when the present one leaves.
  ///
  /// The recent task may be one of them.
  private var lessRecent: [KeyOfName: Set<Int>] = [:]

  private struct KeyOfName: Hashable {
    let key: ExactText
    let lane: Int
  }

  /// The roles for a key and a name.
  subscript(key: String, lane: Int) -> Roles {
    get { tasks[ExactText(key)]?[lane] ?? Roles(lane: lane) }
    // In place, because the tasks of many names may share a key; this also hashes the key only
    // once.
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

  /// The roles for a key, for each name.
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

  /// The slots of all tasks that have one of these keys.
  func slots(with keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      roles(of: key).flatMap { [$0.holder, $0.successor].compactMap(\.self) }
        + (withoutRole[ExactText(key)].map(Array.init) ?? [])
    }
  }

  /// Records that a task with a key has no role, or will have none if a staged change is stored.
  mutating func addWithoutRole(_ slot: Int, _ key: String) {
    withoutRole[ExactText(key), default: []].insert(slot)
  }

  mutating func removeWithoutRole(_ slot: Int, _ key: String) {
    let key = ExactText(key)
    withoutRole[key]?.remove(slot)
    if withoutRole[key]?.isEmpty == true { withoutRole[key] = nil }
  }

  /// The candidates to become the recent task of a key and a name when the present one leaves.
  func lessRecent(_ key: String, _ lane: Int) -> Set<Int> {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane)] ?? []
  }

  mutating func addLessRecent(_ slot: Int, _ key: String, _ lane: Int) {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane), default: []].insert(slot)
  }

  mutating func removeLessRecent(_ slot: Int, _ key: String, _ lane: Int) {
    guard !lessRecent.isEmpty else { return }
    let key = KeyOfName(key: ExactText(key), lane: lane)
    lessRecent[key]?.remove(slot)
    if lessRecent[key]?.isEmpty == true { lessRecent[key] = nil }
  }
}
