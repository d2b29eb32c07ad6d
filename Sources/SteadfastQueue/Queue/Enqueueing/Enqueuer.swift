import SystemFoundation

/// Makes new tasks, and stores them.
final class Enqueuer: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ upkeep: Upkeep) {
    services = upkeep.services
    self.upkeep = upkeep
  }
}

/// The arguments of a call that adds a task.
struct NewTask {
  let name: String
  let payload: StoredPayload
  let uniqueKey: String?
  private(set) var options: TaskOptions

  init(_ name: String, _ payload: StoredPayload, _ uniqueKey: String?, _ options: TaskOptions) {
    self.name = name
    self.payload = payload
    self.uniqueKey = uniqueKey
    self.options = options
  }

  /// Makes a draft with the given options; options that are not set come from `others`, and then
  /// from the payload.
  init<Payload: TaskPayload>(
    _ payload: Payload,
    _ uniqueKey: String?,
    _ options: TaskOptions,
    _ others: TaskOptions = TaskOptions()
  ) {
    var options = options
    options.setMissingOptions(from: others)
    options.setMissingOptions(from: payload.options)
    self.init(
      Payload.taskName,
      StoredPayload(payload),
      uniqueKey ?? payload.storedUniqueKey,
      options
    )
  }

  /// Returns a draft in which the queue's defaults replace options that are not set.
  consuming func filled(from defaults: TaskOptions) -> NewTask {
    options.setMissingOptions(from: defaults)
    return self
  }

  /// Returns a draft that also has the metadata of the task whose handler adds the new task.
  ///
  /// If both have a key, the draft's value stays.
  consuming func inheriting(from record: TaskRecord) -> NewTask {
    let metadata = record.metadata
    if !metadata.isEmpty { options.addMissingMetadata(metadata) }
    return self
  }

  var policy: UniquePolicy { options.onDuplicate ?? .keep }
}

/// A task that was added, or the existing task with the same unique key.
struct AdmittedTask {
  let handle: OutcomeHandle
  let isNew: Bool

  /// The same task, marked as not new.
  var asFound: AdmittedTask { AdmittedTask(handle: handle, isNew: false) }
}

/// Stores new tasks, and reports them.
extension Enqueuer {
  /// Adds a new task.
  ///
  /// This does not call the method for several tasks, whose arrays cost time.
  func add(_ draft: consuming NewTask) async throws -> AdmittedTask {
    let draft = draft.filled(from: configuration.taskDefaults)
    for _ in 0..<Self.maxIDAttempts {
      let now = self.now
      let id = generators.nextID(at: now)
      let record = try record(of: draft, id: id, now: now)
      if let task = try await insert(record, draft.policy, now) {
        if isTimeToYield(after: CollectionOfOne(record)) { await Task.yield() }
        return task
      }
    }
    throw idCollisionError
  }

  /// Adds new tasks.
  func add(_ drafts: [NewTask], for core: QueueCore) async throws -> [EnqueuedTask] {
    let drafts = drafts.map { $0.filled(from: configuration.taskDefaults) }
    guard let policy = drafts.first?.policy else { return [] }
    guard drafts.allSatisfy({ $0.policy == policy }) else {
      throw TaskQueueError(
        .invalidArgument,
        "the payloads set different values of onDuplicate, but one call can use only one; set it "
          + "in the options of the call"
      )
    }
    return try await add(policy, for: core) { now in
      try drafts.map { try record(of: $0, id: generators.nextID(at: now), now: now) }
    }
  }

  /// Makes the record of a new task, once all options are filled in.
  func record(
    of draft: NewTask,
    follower: TaskID? = nil,
    id: TaskID,
    now: Date
  ) throws -> TaskRecord {
    try draft.options.record(
      id: id,
      name: draft.name,
      payload: try storable(draft.payload),
      uniqueKey: draft.uniqueKey,
      prohibitsBackoff: configuration.prohibitsBackoff,
      follower: follower,
      now: now
    )
  }

  private func storable(_ payload: StoredPayload) throws -> StoredPayload {
    if RealWork.encodesPayloads { return try payload.withoutValue() }
    // A store that is not in memory keeps the payload as bytes, so encode it before it is sent.
    return store.appliesAtOnce ? payload : try payload.encoded()
  }

  /// Adds new tasks; if the store already has a task with one of their IDs, makes them again.
  func add(
    _ policy: UniquePolicy,
    for core: QueueCore,
    _ make: (Date) throws -> [TaskRecord]
  ) async throws -> [EnqueuedTask] {
    for _ in 0..<Self.maxIDAttempts {
      let now = self.now
      let records = try make(now)
      let add = { @Sendable (records: [TaskRecord]) in
        let tasks = try await self.insert(records, policy, now)
        return tasks?.map { EnqueuedTask($0, in: core) }
      }
      let middleware = configuration.middleware
      let tasks =
        if middleware.isEmpty || records.isEmpty {
          try await add(records)
        } else {
          try await EnqueueChain.add(records, to: name, through: middleware, add)
        }
      if let tasks {
        if isTimeToYield(after: records) { await Task.yield() }
        return tasks
      }
    }
    throw idCollisionError
  }

  /// The maximum number of times that a task gets a new ID because its ID is in use.
  ///
  /// IDs are random, so an ID that is in use means that another queue uses the same seed.
  private static let maxIDAttempts = 8

  private var idCollisionError: TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) already has tasks with the IDs that the queue '\(name)' generates, "
        + "because another queue uses the same seed; give each queue its own seed for its randomness"
    )
  }

  /// The average number of tasks after which a caller yields its thread.
  private static let tasksBeforeYielding: UInt64 = 32

  /// Returns whether the caller should now yield its thread to other Swift tasks.
  ///
  /// A store in memory never suspends its callers. A few callers that add one task after another
  /// would occupy all of Swift's threads if they did not yield, and no worker could perform a task.
  private func isTimeToYield(after records: some Collection<TaskRecord>) -> Bool {
    // The IDs are random, so they decide. A counter would slow down callers on several threads.
    store.appliesAtOnce
      && records.contains { ($0.id.low >> 16).isMultiple(of: Self.tasksBeforeYielding) }
  }

  /// Stores a new task.
  ///
  /// - Returns: The enqueued task; `nil` if the store already has a task with its ID.
  private func insert(
    _ record: TaskRecord,
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> AdmittedTask? {
    // The outcome is recorded only for a task with a handle. So make the handle before a worker can
    // perform the task.
    var task = newTask(record)
    let isStored = try await store(CollectionOfOne(record), policy) { results in
      if case .replaced(let twin) = results[0] { await observers.reportMerge(into: twin) }
      if let twin = reportInsertion(of: record, results[0], now) { task = twin }
    }
    return isStored ? task : nil
  }

  /// Stores new tasks.
  ///
  /// - Returns: The enqueued tasks; `nil` if the store already has a task with one of their IDs.
  private func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [AdmittedTask]? {
    // If several new tasks have the same key, only one is stored, which is returned for all of
    // them.
    let kept = records.count > 1 ? try Self.oneOfEachKey(records, policy) : records
    var tasks = kept.map(newTask)
    let areStored = try await store(kept, policy) { results in
      for index in kept.indices {
        // Reporting a replacement may wait. The other outcomes are reported synchronously.
        if case .replaced(let twin) = results[index] { await observers.reportMerge(into: twin) }
        if let twin = reportInsertion(of: kept[index], results[index], now) { tasks[index] = twin }
      }
    }
    guard areStored else { return nil }
    return kept.count == records.count ? tasks : tasks.expanded(to: records, from: kept)
  }

  /// Stores new tasks, and calls `report` with the outcomes.
  ///
  /// - Returns: `true` if they are stored; `false` if the store already has a task with one of
  ///   their IDs.
  private func store(
    _ records: some Collection<TaskRecord>,
    _ policy: UniquePolicy,
    report: ([ChangeOutcome]) async -> Void
  ) async throws -> Bool {
    // Until the outcomes are reported, no other caller may replace tasks with these keys.
    let keys = policy == .replace ? Set(records.compactMap(\.uniqueKey)) : []
    if !keys.isEmpty { try await observers.keyLocks.lock(keys) }
    defer { if !keys.isEmpty { observers.keyLocks.unlock(keys) } }
    observers.prepareEnqueuedEvents(of: records)
    let results: [ChangeOutcome]
    do {
      if policy == .replace {
        results = try await replace(with: records)
      } else {
        results = try await storage.persist(records.map { .insert($0, onDuplicate: policy) })
      }
      guard !results.contains(where: \.isImpossibleForInsertion) else {
        throw MismatchedOutcomes(outcomes: results, changeCount: records.count)
      }
    } catch {
      observers.withdrawEnqueuedEvents(of: records)
      // A claim skips a task that is being replaced, and must find the task now.
      dispatch.lookForWork()
      throw error
    }
    if !results.allSatisfy(\.isPlainInsertion) {
      guard try checkInsertion(of: records, results, policy) else { return false }
    }
    await report(results)
    return true
  }

  private func newTask(_ record: TaskRecord) -> AdmittedTask {
    AdmittedTask(handle: observers.outcomes.handle(of: record.id), isNew: true)
  }

  /// Stores tasks, each of which replaces a waiting task with the same unique key.
  ///
  /// If a task that would be replaced is being changed, this waits until the change is reported,
  /// and then tries again.
  private func replace(
    with records: some Collection<TaskRecord>
  ) async throws -> [ChangeOutcome] {
    let batch = records.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<QueueStore.maxConflictRetries {
      results = try await storage.persist(batch)
      let twins = results.compactMap(\.duplicateID)
      if twins.isEmpty { return results }
      for twin in twins {
        try await observers.changes.wait(until: .allIsReported, of: twin)
      }
    }
    throw MismatchedOutcomes(outcomes: results, changeCount: batch.count)
  }

  /// Reports whether a new task was added.
  ///
  /// - Returns: The existing task with the same unique key, if it is used instead of the new one.
  private func reportInsertion(
    of record: TaskRecord,
    _ result: ChangeOutcome,
    _ now: Date
  ) -> AdmittedTask? {
    switch result {
    case .duplicate(let twin), .replaced(let twin):
      observers.withdrawEnqueuedEvents(of: CollectionOfOne(record))
      // The existing task, which now has the contents of the new one, may be available earlier than
      // before. Only the store knows its date, so claim again.
      if case .replaced = result { dispatch.lookForWork() }
      return AdmittedTask(handle: observers.outcomes.handle(of: twin), isNew: false)
    case .stale, .superseded, .commanded, .doneWithConsequences, .unmetDependency, .valueDiffers:
      preconditionFailure("the store returned an outcome that no insertion can have")
    case .done, .identityTaken, .batchRefused:
      break
    }
    observers.events.postEnqueuedEvent(of: record.id)
    upkeep.reportIfUnhandled(record)
    dispatch.lookForWork(at: record.availableDate, after: now)
    return nil
  }
}

extension ChangeOutcome {
  /// Whether no insertion can have this outcome.
  fileprivate var isImpossibleForInsertion: Bool {
    switch self {
    case .stale, .superseded, .commanded, .doneWithConsequences, .valueDiffers: true
    case .done, .replaced, .duplicate, .unmetDependency, .identityTaken, .batchRefused: false
    }
  }

  /// Whether the new task was added as it is.
  fileprivate var isPlainInsertion: Bool { if case .done = self { true } else { false } }

  /// The ID of the existing task that prevented the insertion, if there is one.
  fileprivate var duplicateID: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}

/// Deduplicates tasks that are added in one call.
extension Enqueuer {
  /// Returns one task for each name and unique key, and all tasks without a unique key.
  ///
  /// With the policy `replace`, the last task with a key is returned. With the other policies, the
  /// first one is.
  ///
  /// - Throws: An error if two tasks have the same key and the policy is `reject`.
  static func oneOfEachKey(
    _ records: [TaskRecord],
    _ policy: UniquePolicy
  ) throws(TaskQueueError) -> [TaskRecord] {
    var keys: Set<NamedKey> = []
    func isFirst(_ record: TaskRecord) -> Bool {
      NamedKey(record).map { keys.insert($0).inserted } ?? true
    }
    if policy == .replace { return records.reversed().filter(isFirst).reversed() }
    let kept = records.filter(isFirst)
    if policy == .reject, kept.count < records.count {
      throw TaskQueueError(
        .duplicate,
        "several of the new tasks have the same unique key; give each task its own key"
      )
    }
    return kept
  }
}

/// A unique key, and the name of the tasks among which it is unique.
private struct NamedKey: Hashable {
  let name: ExactText
  let key: ExactText

  init?(_ record: TaskRecord) {
    guard let key = record.uniqueKey else { return nil }
    (name, self.key) = (ExactText(record.name), ExactText(key))
  }
}

extension [AdmittedTask] {
  /// Returns a task for each record, where these are the tasks of the records in `kept`.
  ///
  /// The task for a record that is not in `kept` is the one with the same unique key.
  func expanded(to records: [TaskRecord], from kept: [TaskRecord]) -> [AdmittedTask] {
    var ofKey: [NamedKey: AdmittedTask] = [:]
    var ofID: [TaskID: AdmittedTask] = [:]
    for (record, task) in zip(kept, self) {
      if let key = NamedKey(record) { ofKey[key] = task }
      ofID[record.id] = task
    }
    return records.compactMap { record in
      ofID[record.id] ?? NamedKey(record).flatMap { ofKey[$0]?.asFound }
    }
  }
}

/// Explains why the store has refused new tasks.
extension Enqueuer {
  /// Returns whether the store added the tasks; `false` if one of their IDs is in use.
  ///
  /// - Throws: The reason for which the store refused the tasks, unless it is an ID that is in use.
  func checkInsertion(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) throws -> Bool {
    guard !results.contains(.identityTaken) else {
      observers.withdrawEnqueuedEvents(of: records)
      return false
    }
    if let error = dependencyError(of: records, results)
      ?? duplicateError(of: records, results, policy)
    {
      observers.withdrawEnqueuedEvents(of: records)
      throw error
    }
    return true
  }

  /// Returns the error for the first task whose unique key is in use, if duplicates are rejected.
  private func duplicateError(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) -> TaskQueueError? {
    guard policy == .reject else { return nil }
    for (record, result) in zip(records, results) {
      guard case .duplicate(let twin) = result else { continue }
      return TaskQueueError(
        .duplicate,
        "the task \(twin) already has the unique key '\(record.uniqueKey ?? "")'; get that task "
          + "with task(_:), or give the new task another key or another onDuplicate"
      )
    }
    return nil
  }

  /// Returns the error for the first task that would wait forever for a dependency; `nil` if there
  /// is none.
  private func dependencyError(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome]
  ) -> TaskQueueError? {
    for (record, result) in zip(records, results) {
      guard case .unmetDependency(let id) = result else { continue }
      return TaskQueueError(
        .unmetDependency,
        "the new task '\(record.name)' would wait forever for the task \(id), which is not in the "
          + "store, or has ended without success; depend on tasks that have not ended, or enqueue "
          + "the new task and its dependencies in one call"
      )
    }
    return nil
  }
}

/// Adds tasks to the queue.
extension QueueCore {
  func enqueue(_ draft: consuming NewTask) async throws -> EnqueuedTask {
    guard configuration.middleware.isEmpty else { return try await enqueue([draft])[0] }
    return EnqueuedTask(try await opened.enqueuer.add(draft), in: self)
  }

  func enqueue(_ drafts: [NewTask]) async throws -> [EnqueuedTask] {
    try await opened.enqueuer.add(drafts, for: self)
  }

  func enqueue(together body: (inout TaskDrafts) throws -> Void) async throws -> [EnqueuedTask] {
    try await opened.enqueuer.add(.reject, for: self) { now in
      var drafts = TaskDrafts(for: enqueuer, at: now)
      try body(&drafts)
      return drafts.records
    }
  }

  /// Adds a batch of tasks, and a follower, which starts when all of them have ended.
  func enqueue<Payload: TaskPayload, Follower: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    _ options: TaskOptions,
    then follower: Follower,
    _ followerOptions: TaskOptions
  ) async throws -> EnqueuedBatch {
    if let key = follower.storedUniqueKey {
      throw TaskQueueError(
        .invalidArgument,
        "the follower of the batch has the unique key '\(key)', but a follower can't have one: an "
          + "existing task with the same key would be kept instead of the follower, and would not "
          + "wait for the batch; use a payload without a unique key"
      )
    }
    let members = payloads.map { NewTask($0, nil, options) }
    let last = NewTask(follower, nil, followerOptions)
    var tasks = try await enqueue { drafts in
      let id = drafts.nextID()
      for member in members { try drafts.add(member, follower: id) }
      try drafts.add(last, id: id)
    }
    let enqueuedFollower = tasks.removeLast()
    return EnqueuedBatch(tasks: tasks, follower: enqueuedFollower)
  }

  /// Adds tasks to an existing batch, in the handler of another task of the batch.
  func enqueue<Payload: TaskPayload>(
    contentsOf payloads: [Payload],
    options: TaskOptions,
    inBatchBefore follower: TaskID,
    inheritingFrom record: TaskRecord
  ) async throws -> [EnqueuedTask] {
    let members = payloads.map { NewTask($0, nil, options).inheriting(from: record) }
    let defaults = configuration.taskDefaults
    let mayWait = members.contains { member in
      let options = member.options
      return member.uniqueKey != nil || !options.dependencies.isEmpty
        || !defaults.dependencies.isEmpty || (options.orderKey ?? defaults.orderKey) != nil
    }
    guard !mayWait else {
      throw TaskQueueError(
        .invalidArgument,
        "a task that is added to a batch must not have dependencies, an orderKey or a unique key, "
          + "because the task and the follower of the batch could wait for each other forever; "
          + "remove them"
      )
    }
    return try await enqueue { drafts in
      for member in members { try drafts.add(member, follower: follower) }
    }
  }

  /// Returns a SQL statement that adds a task.
  func insertStatement(_ draft: consuming NewTask) throws -> InsertStatement {
    try checkCanOpen()
    let draft = draft.filled(from: configuration.taskDefaults)
    let now = self.now
    let record = try enqueuer.record(of: draft, id: generators.nextID(at: now), now: now)
    let policy = draft.policy
    guard let statement = try store.insertStatement(for: record, onDuplicate: policy) else {
      throw TaskQueueError(
        .invalidArgument,
        "the store (\(store)) has no SQL statement that adds a task; use a SQLite or PostgreSQL "
          + "store, or call enqueue"
      )
    }
    return statement
  }
}
