import Foundation
import SteadfastTesting
import Testing

/// A store that breaks one requirement, together with the requirement's ID.
struct Mutant: Sendable, CustomTestStringConvertible {
  let name: String
  let requirement: String
  let behaviour: PlainStore.Behaviour

  init(
    _ name: String,
    breaks requirement: String,
    isShared: Bool = false,
    _ breakBehaviour: (inout PlainStore.Behaviour) -> Void
  ) {
    self.name = name
    self.requirement = requirement
    var behaviour = PlainStore.Behaviour()
    if isShared { behaviour.sharing = StoreSharing() }
    breakBehaviour(&behaviour)
    self.behaviour = behaviour
  }

  var testDescription: String { "\(requirement): \(name)" }

  static let all =
    order + claims + ends + leases + control + ended + batches + uniqueKeys + expiredTwins
    + orderKeys
    + conditions + waiting + endsAlong + restartsAlong + removalsAlong + waitingInStores
    + queues + values + memory + forgetting + suspension + suspensionAndOthers + completion
    + memoryInStores + lookUps + newestAndCensus + records + metadata
    + life + reopening + sharing + commands + concurrency + model
}

// MARK: - Ways to break a store

extension PlainStore.Behaviour {
  /// Runs `body` after each change that had an effect, with the table before and after the change.
  mutating func afterEachChange(
    _ body: @escaping @Sendable (TaskChange, ReferenceTable, inout ReferenceTable) -> Void
  ) {
    apply = { batch, table in
      let before = table
      let outcomes = table.apply(batch)
      for (change, outcome) in zip(batch, outcomes) where outcome.isDone {
        body(change, before, &table)
      }
      return outcomes
    }
  }

  /// Runs `body` on the entry of each changed task; `body` also gets the entry before the change.
  mutating func editChangedTask(
    _ body:
      @escaping @Sendable (TaskChange, inout ReferenceTable.Entry, ReferenceTable.Entry?) ->
      Void
  ) {
    afterEachChange { change, before, table in
      guard let id = change.affectedTask,
        let index = table.entries.firstIndex(where: { $0.record.id == id })
      else { return }
      body(change, &table.entries[index], before.entries.first { $0.record.id == id })
    }
  }

  /// Replaces the outcomes of changes.
  mutating func replaceOutcomes(
    _ body: @escaping @Sendable (TaskChange, ChangeOutcome) -> ChangeOutcome
  ) {
    apply = { batch, table in zip(batch, table.apply(batch)).map(body) }
  }

  /// Changes each request for tasks.
  mutating func editRequests(_ body: @escaping @Sendable (inout ClaimRequest) -> Void) {
    request = { request in
      var request = request
      body(&request)
      return request
    }
  }

  /// Changes the filter of each look-up.
  mutating func editFilters(_ body: @escaping @Sendable (inout TaskFilter) -> Void) {
    matches = { task, filter in
      var filter = filter
      body(&filter)
      return filter.matches(task)
    }
  }

  /// Changes each record that a claim or a look-up returns.
  mutating func editShownRecords(_ body: @escaping @Sendable (inout TaskRecord) -> Void) {
    shown = { record in
      var record = record
      body(&record)
      return record
    }
  }

  /// Rewrites the records of insertions before they are stored.
  mutating func rewriteInsertions(_ body: @escaping @Sendable (TaskRecord) -> TaskRecord) {
    rewrite = { change in
      guard case .insert(let record, let policy) = change else { return change }
      return .insert(body(record), onDuplicate: policy)
    }
  }
}

extension TaskChange {
  /// The task that a change adds or affects; `nil` if it affects several or none.
  var affectedTask: TaskID? { if case .insert(let record, _) = self { record.id } else { taskID } }

  /// Returns a copy with another lease; a change that needs no lease stays the same.
  func replacingLease(_ lease: (Lease) -> Lease) -> TaskChange {
    switch self {
    case .move(.claimed(let old), let move)
    where [.retry, .release, .park].contains(move.kind):
      .move(.claimed(lease(old)), move)
    case .end(.claimed(let old), let end) where end.state != .cancelled:
      .end(.claimed(lease(old)), end)
    case .memory(.remember(let old, let name, let value)):
      .remember(lease(old), named: name, value: value)
    case .memory(.suspend(let old, let date, let names, let origin)):
      .suspend(lease(old), until: date, awaiting: names, countedFrom: origin)
    default: self
    }
  }
}

extension TaskRecord {
  /// Returns a copy with the given fields replaced.
  func copy(
    name: String? = nil,
    payload: StoredPayload? = nil,
    priority: Int? = nil,
    uniqueKey: String?? = nil,
    uniqueUntil: Date?? = nil,
    latestDate: Date?? = nil,
    orderKey: String?? = nil,
    blocksOrderOnFailure: Bool? = nil,
    conditions: Set<TaskCondition>? = nil,
    queue: String? = nil,
    tags: Set<String>? = nil,
    metadata: [String: String]? = nil
  ) -> TaskRecord {
    TaskRecord(
      id: id,
      name: name ?? self.name,
      payload: payload ?? self.payload,
      priority: TaskQueue.Priority(rawValue: priority ?? self.priority.rawValue),
      createdDate: createdDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      uniqueKey: uniqueKey ?? self.uniqueKey,
      uniqueUntil: uniqueUntil ?? self.uniqueUntil,
      latestDate: latestDate ?? self.latestDate,
      orderKey: orderKey ?? self.orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure ?? self.blocksOrderOnFailure,
      conditions: conditions ?? self.conditions,
      dependencies: dependencies,
      queue: queue ?? self.queue,
      tags: tags ?? self.tags,
      metadata: metadata ?? self.metadata,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      state: state,
      availableDate: availableDate,
      countedFrom: countedFrom,
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: lastError,
      failedDate: failedDate,
      failedAttempt: failedAttempt,
      earlierFailures: earlierFailures,
      isPostponed: isPostponed,
      finishedDate: finishedDate
    )
  }

  /// Returns a copy with the payload that the closure makes from the old payload and its bytes.
  func replacingPayload(_ payload: (StoredPayload, [UInt8]) -> StoredPayload) -> TaskRecord {
    copy(payload: payload(self.payload, (try? self.payload.bytes()) ?? []))
  }
}
