package import SteadfastQueue
package import SystemFoundation

/// The tables within a transaction.
///
/// An extension makes the changes. A store adds only what differs between the databases.
package protocol TaskTables: AnyObject {
  associatedtype Database: TaskDatabase

  /// The largest payload, in bytes, that is stored in the row of its task.
  static var longestInnerPayload: Int { get }

  var database: Database { get }
  /// Whether several stores may use the tables; if so, claims expire.
  var isShared: Bool { get }
  /// The order keys whose first task the batch may have changed.
  var changedOrderKeys: [String] { get set }
  /// The tasks with a follower that the batch has added so far.
  var newMembers: [TaskID] { get set }
  /// The number of rows that the connection has changed so far; `nil` if unknown.
  var changedRowCount: Int? { get }

  /// Records that tasks that the changes do not name may have become available.
  func recordFreedTasks()

  /// Removes a claimed task with one statement if the task has no key and no relation to other
  /// tasks, like most tasks.
  ///
  /// - Returns: Whether the task was removed. A task also stays if it has rows in other tables, or
  ///   if the lease is not its current lease.
  func removeIfUnrelated(_ lease: Lease) throws -> Bool
  /// Makes the claim of a task expire after a duration from now.
  func extendClaim(of id: TaskID, for duration: Duration) throws
  /// Locks tasks that have ended, before they are removed.
  ///
  /// - Returns: The tasks that still have the state.
  func lockForRemoval(_ ids: [TaskID], endedAs state: TaskState) throws -> [TaskID]
  /// Corrects dates after the clock was set back.
  func rebase(to now: Date) throws -> ChangeOutcome
}

extension TaskTables {
  package var changedRowCount: Int? { nil }

  package func recordFreedTasks() {}

  package func removeIfUnrelated(_ lease: Lease) throws -> Bool { false }

  package func lockForRemoval(_ ids: [TaskID], endedAs state: TaskState) throws -> [TaskID] { ids }

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
    case .command(let id, let old, let new): return try replaceCommand(of: id, old, by: new)
    case .memory(.remember(let lease, let name, let value)):
      return try remember(lease, named: name, value: value)
    case .memory(.suspend(let lease, let date, let names, let origin)):
      return try suspend(lease, until: date, awaiting: names, countedFrom: origin)
    case .memory(.complete(let id, let name, let value)):
      return try complete(id, named: name, value: value)
    case .broad(.unpark(let name, let queue, let version)):
      return try unparkTasks(named: name, in: queue, below: version)
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
    if let refusal = entry.refusal(of: target) { return refusal }
    if let failure = move.failure { try recordFailure(failure, of: entry) }
    if move.takesKey, let date = move.availableDate {
      return try restart(entry, at: date, forgetsMemory: move.forgetsMemory)
    }
    try self.move(entry, RowMove(move, from: entry.state, to: state))
    if move.kind == .park {
      try database.send(
        "update steadfast_task set parked_version = $2 where id = $1",
        .id(entry.id),
        StoredVersion.integer(for: move.knownVersion)
      )
    }
    guard move.yieldsToSuccessor, let date = move.availableDate else { return .done }
    return try replaceWithSuccessor(entry, at: date) ?? .done
  }

  /// Returns the payload for the row of a task; null if the payload needs a separate row.
  static func rowPayload(_ payload: [UInt8]) -> SQLValue {
    payload.count <= longestInnerPayload ? .bytes(payload) : .null
  }

  /// Adds the separate row of a task's payload, if the payload needs one.
  func addLongPayload(_ payload: [UInt8], of id: TaskID) throws {
    guard payload.count > Self.longestInnerPayload else { return }
    try database.send("insert into steadfast_payload values ($1, $2)", .id(id), .bytes(payload))
  }

  /// Replaces the separate row of a task's payload, if the new payload needs one; otherwise,
  /// removes it.
  func replaceLongPayload(_ payload: [UInt8], of id: TaskID) throws {
    guard Self.longestInnerPayload < .max else { return }
    try database.send("delete from steadfast_payload where task_id = $1", .id(id))
    try addLongPayload(payload, of: id)
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
struct RowMove {
  let state: TaskState
  /// Whether the available date becomes the creation date, because a suspended task wakes.
  let wakes: Bool
  /// The new available date; `nil` if the date stays.
  let availableDate: Date?
  let countedFrom: Date?
  let isPostponed: Bool?
  let retryCount: Int?
  let clearsInterruptions: Bool
  let keepsPosition: Bool

  /// Makes a change to a row; by default, only the state and the position change.
  init(
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
  func refusesBatch(_ outcome: ChangeOutcome) -> Bool {
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
  var ofRefusedBatch: ChangeOutcome {
    switch self {
    case .done, .doneWithConsequences, .replaced, .superseded: .batchRefused
    case .duplicate, .unmetDependency, .identityTaken, .stale, .commanded, .batchRefused,
      .valueDiffers:
      self
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
