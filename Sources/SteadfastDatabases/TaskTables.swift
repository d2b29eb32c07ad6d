package import SteadfastQueue
package import SystemFoundation

/// The tables within a transaction, with a method for each kind of change.
package protocol TaskTables: AnyObject {
  associatedtype Database: TaskDatabase

  var database: Database { get }
  /// The order keys whose first task the batch may have changed.
  var changedOrderKeys: [String] { get set }
  /// The tasks with a follower that the batch has added so far.
  var newMembers: [TaskRecord] { get set }
  /// The number of rows that the connection has changed so far; `nil` if unknown.
  var changedRowCount: Int? { get }

  /// The properties of a task that a change needs; `nil` if no task has this ID.
  func entry(of id: TaskID) throws -> TaskEntry?
  /// Makes the successor of a unique key the holder, unless the key has a holder.
  func promoteSuccessor(ofKey key: String, taskName name: String) throws
  /// Adds new tasks to the batches of their followers.
  ///
  /// A batch may already have had a member with the same ID, which was removed later.
  func addMembersToBatches(_ members: [TaskRecord]) throws
  /// For each of ``changedOrderKeys``, gives the turn to run to the first task with that key.
  func updateTurnsOfChangedOrderKeys() throws

  // MARK: Insertions

  /// Returns the outcome of an insertion if a task already has the ID of the new task; `nil` if no
  /// task has the ID.
  func outcomeIfIDExists(_ record: TaskRecord, _ payload: [UInt8]) throws -> ChangeOutcome?
  /// Returns the tasks that hold or await the unique key of a new task.
  func twins(of record: TaskRecord, _ key: String) throws -> [UniqueKeyRole: KeyTwin]
  /// Removes the key roles of the expired tasks that have the unique key of a new task.
  func removeKeyRolesOfExpiredTasks(withKeyOf record: TaskRecord, _ key: String) throws
  /// Returns the succeeded task that a new task duplicates; `nil` if there is none.
  func succeededTwin(of record: TaskRecord, _ key: String) throws -> TaskID?
  /// Gives the content of a new task to an existing task with the same unique key.
  func replaceContent(of twin: TaskID, with record: TaskRecord, payload: [UInt8]) throws
  /// Adds the row of a new task, unless another task has its ID.
  ///
  /// - Returns: Whether the row was added.
  func addRow(of record: TaskRecord, keyRole role: UniqueKeyRole?, payload: [UInt8]) throws -> Bool
  /// Stores the dependencies of a new task.
  func storeDependencies(_ dependencies: TaskDependencies, of record: TaskRecord) throws
    -> ChangeOutcome

  // MARK: Changes

  func end(_ target: TaskTarget, _ end: TaskEnd) throws -> ChangeOutcome
  /// Changes the row of a task that stays, and ends its claim.
  func move(_ entry: TaskEntry, _ move: RowMove) throws
  /// Makes tasks wait like new tasks, at the ends of their lanes, in the order of their IDs.
  func restartTasks(_ ids: [TaskID], at date: Date) throws
  /// Restarts the tasks that were cancelled because of a task.
  ///
  /// - Returns: The restarted tasks, in the order of their IDs.
  func restartCascade(of entry: TaskEntry, at date: Date) throws -> [TaskID]
  /// Returns the task that holds a unique key among the tasks with a name.
  func holder(ofKey key: String, taskName name: String) throws -> TaskID?
  /// Replaces a task that is about to be retried with the successor of its unique key.
  ///
  /// - Returns: The outcome of the retry; `nil` if no successor can replace the task.
  func replaceWithSuccessor(_ holder: TaskEntry, at date: Date) throws -> ChangeOutcome?
  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws
  func removeMemory(of entry: TaskEntry) throws
  /// Returns the outcome of a change that has affected other tasks.
  func outcome(for entry: TaskEntry, affecting others: [TaskID]) throws -> ChangeOutcome
  func extend(_ lease: Lease, for duration: Duration) throws -> ChangeOutcome
  func remember(_ lease: Lease, named name: String, value: [UInt8]) throws -> ChangeOutcome
  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome
  func complete(_ id: TaskID, named name: String, value: [UInt8]) throws -> ChangeOutcome
  func update(_ id: TaskID, with update: TaskUpdate, payload: [UInt8]) throws -> ChangeOutcome
  func remove(_ id: TaskID) throws -> ChangeOutcome
  func unparkTasks(named name: String, in queue: String) throws -> ChangeOutcome
  func prune(
    _ state: TaskState,
    in queue: String,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) throws -> ChangeOutcome
  func rebase(to now: Date) throws -> ChangeOutcome
  func setValue(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome
}

extension TaskTables {
  package var changedRowCount: Int? { nil }

  /// Makes all changes of a batch, or none if a stored value is not the expected one or an
  /// insertion refuses the batch.
  ///
  /// - Throws: After any error, the caller must roll back the batch. A ``BatchRefusal`` has the
  ///   outcomes of the batch.
  package func apply(_ batch: [PreparedChange]) throws -> [ChangeOutcome] {
    guard try batch.allSatisfy(isStoredValueExpected) else {
      return batch.map { _ in .valueDiffers }
    }
    changedOrderKeys = []
    newMembers = []
    let countBefore = changedRowCount
    var outcomes: [ChangeOutcome] = []
    for change in batch {
      let outcome = try apply(change)
      outcomes.append(outcome)
      guard !change.refusesBatch(outcome) else {
        // The refused row may exist until the rollback, so the remaining changes are skipped.
        let rest = batch.dropFirst(outcomes.count).map { _ in ChangeOutcome.batchRefused }
        return try refuseBatch(
          with: outcomes.map(\.ofRefusedBatch) + rest,
          rowCountBefore: countBefore
        )
      }
    }
    if !newMembers.isEmpty { try addMembersToBatches(newMembers) }
    if !changedOrderKeys.isEmpty { try updateTurnsOfChangedOrderKeys() }
    return outcomes
  }

  /// Returns the outcomes of a refused batch, or throws them if there are changes to roll back.
  private func refuseBatch(
    with outcomes: [ChangeOutcome],
    rowCountBefore countBefore: Int?
  ) throws(BatchRefusal) -> [ChangeOutcome] {
    guard let countBefore, changedRowCount == countBefore else {
      throw BatchRefusal(outcomes: outcomes)
    }
    return outcomes
  }

  /// Returns whether the stored value is the value that a change expects; `true` if the change sets
  /// no value.
  private func isStoredValueExpected(by prepared: PreparedChange) throws -> Bool {
    guard case .setValue(let name, let old, _) = prepared.change else { return true }
    return try database.value(named: name) == old
  }

  private func apply(_ prepared: PreparedChange) throws -> ChangeOutcome {
    switch prepared.change {
    case .insert(let record, let policy):
      return try insert(record, onDuplicate: policy, payload: prepared.payload)
    case .move(let target, let move): return try self.move(target, move)
    case .end(let target, let end): return try self.end(target, end)
    case .update(let id, let update):
      return try self.update(id, with: update, payload: prepared.payload)
    case .remove(let id): return try remove(id)
    case .extend(let lease, let duration): return try extend(lease, for: duration)
    case .memory(.remember(let lease, let name, let value)):
      return try remember(lease, named: name, value: value)
    case .memory(.suspend(let lease, let date, let names, let origin)):
      return try suspend(lease, until: date, awaiting: names, countedFrom: origin)
    case .memory(.complete(let id, let name, let value)):
      return try complete(id, named: name, value: value)
    case .broad(.unpark(let name, let queue)): return try unparkTasks(named: name, in: queue)
    case .broad(.prune(let state, let date, let count, let now, let queue)):
      return try prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .broad(.rebase(let date)): return try rebase(to: date)
    case .setValue(let name, _, let new): return try setValue(new, named: name)
    case .memory, .broad: throw UnknownChange()
    @unknown default: throw UnknownChange()
    }
  }

  private func move(_ target: TaskTarget, _ move: TaskMove) throws -> ChangeOutcome {
    let entry = try entryToChange(target) { $0 != .running && move.state(from: $0) != nil }
    guard let entry, let state = move.state(from: entry.state) else { return .stale }
    if let failure = move.failure { try recordFailure(failure, of: entry) }
    if move.takesKey, let date = move.availableDate {
      return try restart(entry, at: date, forgetsMemory: move.forgetsMemory)
    }
    try self.move(entry, RowMove(move, from: entry.state, to: state))
    guard move.yieldsToSuccessor, let date = move.availableDate else { return .done }
    return try replaceWithSuccessor(entry, at: date) ?? .done
  }

  private func restart(
    _ entry: TaskEntry,
    at date: Date,
    forgetsMemory: Bool
  ) throws -> ChangeOutcome {
    if entry.keyRole == nil, let key = entry.uniqueKey,
      let holder = try holder(ofKey: key, taskName: entry.name)
    {
      return .duplicate(of: holder)
    }
    try restartTasks([entry.id], at: date)
    if forgetsMemory { try removeMemory(of: entry) }
    guard entry.state.isFinished, entry.affectsOtherTasks else { return .done }
    return try outcome(for: entry, affecting: restartCascade(of: entry, at: date))
  }
}

/// What changes in the row of a task that stays.
package struct RowMove {
  package let state: TaskState
  /// Whether the available date becomes the creation date, because a suspended task wakes.
  package let wakes: Bool
  /// The new available date; `nil` if the date stays.
  package let availableDate: Date?
  package let countedFrom: Date?
  package let isPostponed: Bool?
  package let retryCount: Int?
  package let clearsInterruptions: Bool
  package let keepsPosition: Bool

  /// Makes a change to a row; by default, only the state and the position change.
  package init(
    to state: TaskState,
    wakes: Bool = false,
    availableDate: Date? = nil,
    countedFrom: Date? = nil,
    isPostponed: Bool? = nil,
    retryCount: Int? = nil,
    clearsInterruptions: Bool = false,
    keepsPosition: Bool = false
  ) {
    self.state = state
    self.wakes = wakes
    self.availableDate = availableDate
    self.countedFrom = countedFrom
    self.isPostponed = wakes ? false : isPostponed
    self.retryCount = retryCount
    self.clearsInterruptions = clearsInterruptions
    self.keepsPosition = keepsPosition
  }

  init(_ move: TaskMove, from old: TaskState, to state: TaskState) {
    self.init(
      to: state,
      wakes: old == .suspended && state == .paused,
      availableDate: move.availableDate,
      countedFrom: move.countedFrom,
      isPostponed: move.isPostponed,
      retryCount: move.retryCount,
      clearsInterruptions: move.retryCount != nil,
      keepsPosition: move.keepsPosition
    )
  }
}

/// The task that holds a unique key, or the successor, which waits for the key.
package struct KeyTwin {
  package let id: TaskID
  package let state: TaskState
  /// Whether the task's key was still unique when the new task was created.
  package let isRecent: Bool
  package let memorySize: Int
  /// Whether the task is not running, and had expired when the new task was created.
  package let hasExpired: Bool
}

extension KeyTwin {
  /// Reads a row: the ID, the role, the state, whether the task is recent, the size of the task's
  /// memory, and whether the task has expired.
  package static func read(_ row: some TaskRow) throws -> (UniqueKeyRole, KeyTwin) {
    guard let id = row.id(0), let role = UniqueKeyRole(rawValue: row.text(1)) else {
      throw UnreadableRow(column: "key_role", id: row.id(0))
    }
    let twin = KeyTwin(
      id: id,
      state: try row.state(2),
      isRecent: row.flag(3),
      memorySize: row.integer(4),
      hasExpired: row.flag(5)
    )
    return (role, twin)
  }
}

/// Insertions.
extension TaskTables {
  func insert(
    _ record: TaskRecord,
    onDuplicate policy: UniquePolicy,
    payload: [UInt8]
  ) throws -> ChangeOutcome {
    var role: UniqueKeyRole?
    let key = StoredKey.string(for: record.uniqueKey, in: record.queue)
    let takesKey = key != nil && !record.state.isFinished
    if takesKey || !record.dependencies.tasks.isEmpty,
      let sent = try outcomeIfIDExists(record, payload)
    {
      return sent
    }
    if takesKey, let key {
      switch try resolveUniqueKey(of: record, key: key, onDuplicate: policy, payload: payload) {
      case .role(let decided): role = decided
      case .outcome(let outcome): return outcome
      }
    }
    guard try addRow(of: record, keyRole: role, payload: payload) else {
      return try outcomeIfIDExists(record, payload) ?? .identityTaken
    }
    if let key = StoredKey.string(for: record.orderKey, in: record.queue) {
      changedOrderKeys.append(key)
    }
    if record.dependencies.follower != nil { newMembers.append(record) }
    guard !record.dependencies.tasks.isEmpty else { return .done }
    return try storeDependencies(record.dependencies, of: record)
  }

  /// Decides which key role a new task gets, or with which outcome the task is not added.
  ///
  /// If the policy is `replace`, this may also replace the content of an existing task with the
  /// key.
  private func resolveUniqueKey(
    of record: TaskRecord,
    key: String,
    onDuplicate policy: UniquePolicy,
    payload: [UInt8]
  ) throws -> KeyDecision {
    let all = try twins(of: record, key)
    let twins = all.filter { !$0.value.hasExpired }
    guard let last = twins[.successor] ?? twins[.holder] else {
      let recent = policy == .replace ? nil : try succeededTwin(of: record, key)
      if let recent { return .outcome(.duplicate(of: recent)) }
      if !all.isEmpty { try removeKeyRolesOfExpiredTasks(withKeyOf: record, key) }
      return .role(.holder)
    }
    if policy == .reject || policy == .join {
      return .outcome(.duplicate(of: (twins[.holder] ?? last).id))
    }
    if twins[.successor] == nil {
      let begins = policy == .replace || !last.isRecent
      if last.state == .running && begins || policy == .replace && last.memorySize > 0 {
        if all[.successor] != nil { try removeKeyRolesOfExpiredTasks(withKeyOf: record, key) }
        return .role(.successor)
      }
    }
    guard policy == .replace else { return .outcome(.duplicate(of: last.id)) }
    try replaceContent(of: last.id, with: record, payload: payload)
    return .outcome(.replaced(last.id))
  }
}

private enum KeyDecision {
  case role(UniqueKeyRole)
  case outcome(ChangeOutcome)
}

/// The error for a batch that an insertion refused after other changes of the batch were made.
package struct BatchRefusal: Error {
  package let outcomes: [ChangeOutcome]

  package init(outcomes: [ChangeOutcome]) { self.outcomes = outcomes }
}

/// The error for a kind of change that this version does not know.
package struct UnknownChange: Error {
  package init() {}
}

/// A change whose payload was encoded before the transaction.
package struct PreparedChange: Sendable {
  package let change: TaskChange
  /// The bytes of the payload; empty if the change has no payload.
  package let payload: [UInt8]

  package init(_ change: TaskChange) throws {
    try change.checkForm()
    self.change = change
    switch change {
    case .insert(let record, _): payload = try record.payload.bytes()
    case .update(_, let update): payload = try update.payload?.bytes() ?? []
    default: payload = []
    }
  }

  /// Returns whether an outcome of the change means that the whole batch is refused.
  package func refusesBatch(_ outcome: ChangeOutcome) -> Bool {
    switch (change, outcome) {
    case (_, .identityTaken), (_, .unmetDependency), (.insert(_, .reject), .duplicate): true
    default: false
    }
  }
}

extension ChangeOutcome {
  /// The outcome to report if the change's batch is refused.
  ///
  /// A change without effect keeps its outcome.
  package var ofRefusedBatch: ChangeOutcome {
    switch self {
    case .done, .doneWithConsequences, .replaced, .superseded: .batchRefused
    case .duplicate, .unmetDependency, .identityTaken, .stale, .batchRefused, .valueDiffers: self
    @unknown default: .batchRefused
    }
  }
}

extension UniquePolicy {
  /// The policy's name in a statement that inserts a task.
  package var storedName: String {
    switch self {
    case .keep: "keep"
    case .replace: "replace"
    case .reject: "reject"
    case .join: "join"
    // The database refuses a policy that this version does not know.
    @unknown default: "unknown"
    }
  }
}

extension TaskRecord {
  /// The reason why no statement can add the task; `nil` if a statement can add the task.
  package var reasonNotInsertableByStatement: String? {
    if state != .waiting {
      return "a statement can add only a waiting task, but the task \(id) is \(state); add this "
        + "task with the store instead"
    }
    guard dependencies.follower != nil else { return nil }
    return "a statement can't add a task that belongs to a batch, but the task \(id) has a "
      + "follower; add this task with the store instead"
  }
}
