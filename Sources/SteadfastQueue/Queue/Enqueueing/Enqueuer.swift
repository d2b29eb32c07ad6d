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
struct TaskDraft {
  let name: String
  let payload: StoredPayload
  let uniqueKey: String?
  /// The options from the call and from the payload.
  private(set) var options: TaskOptions

  init(_ name: String, _ payload: StoredPayload, _ uniqueKey: String?, _ options: TaskOptions) {
    self.name = name
    self.payload = payload
    self.uniqueKey = uniqueKey
    self.options = options
  }

  /// Makes a draft, for which `others`, then the payload, fill in the options that are not set.
  init<Payload: TaskPayload>(
    _ payload: Payload,
    _ uniqueKey: String?,
    _ options: TaskOptions,
    _ others: TaskOptions = TaskOptions()
  ) {
    var options = options
    options.fill(from: others)
    options.fill(from: payload.options)
    self.init(
      Payload.taskName,
      StoredPayload(payload),
      uniqueKey ?? payload.storedUniqueKey,
      options
    )
  }

  /// Returns the draft with the queue's defaults for the options that are not set.
  consuming func filled(from defaults: TaskOptions) -> TaskDraft {
    options.fill(from: defaults)
    return self
  }

  var policy: UniquePolicy { options.onDuplicate ?? .keep }
}

/// A task that a call has added, or the existing task with the same unique key.
struct AdmittedTask {
  let handle: OutcomeHandle
  let isNew: Bool

  /// The same task, for a call that found it and did not add it.
  var asFound: AdmittedTask { AdmittedTask(handle: handle, isNew: false) }
}

/// Stores new tasks, and reports them.
extension Enqueuer {
  /// Adds a new task.
  ///
  /// It allocates no arrays, except those passed to the store and returned by it.
  func add(_ draft: consuming TaskDraft) async throws -> AdmittedTask {
    let draft = draft.filled(from: configuration.taskDefaults)
    for _ in 0..<Self.maxIDDraws {
      let now = self.now
      let id = generators.nextID(at: now)
      let record = try record(of: draft, id: id, now: now)
      if let task = try await insert(record, draft.policy, now) {
        if isTimeToYield(after: CollectionOfOne(record)) { await Task.yield() }
        return task
      }
    }
    throw idCollision
  }

  /// Adds new tasks.
  func add(_ drafts: [TaskDraft]) async throws -> [AdmittedTask] {
    let drafts = drafts.map { $0.filled(from: configuration.taskDefaults) }
    guard let policy = drafts.first?.policy else { return [] }
    guard drafts.allSatisfy({ $0.policy == policy }) else {
      throw TaskQueueError(
        .invalidArgument,
        "the payloads set different values of onDuplicate, but one call can use only one; set it "
          + "in the options of the call"
      )
    }
    return try await add(policy) { now in
      try drafts.map { try record(of: $0, id: generators.nextID(at: now), now: now) }
    }
  }

  /// Makes the record of a new task, once all options are filled in.
  func record(
    of draft: TaskDraft,
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
    // Most stores keep the payload's bytes. Encode them here, so that no record must be converted.
    return store.appliesAtOnce ? payload : try payload.encoded()
  }

  /// Adds new tasks, and makes them again with other IDs if one of their IDs is already in use.
  func add(
    _ policy: UniquePolicy,
    _ make: (Date) throws -> [TaskRecord]
  ) async throws -> [AdmittedTask] {
    for _ in 0..<Self.maxIDDraws {
      let now = self.now
      let records = try make(now)
      if let tasks = try await insert(records, policy, now) {
        if isTimeToYield(after: records) { await Task.yield() }
        return tasks
      }
    }
    throw idCollision
  }

  /// The maximum number of IDs tried for a task.
  ///
  /// IDs are random, so a collision means that another queue uses the same seed.
  private static let maxIDDraws = 8

  private var idCollision: TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) already has tasks with the IDs that the queue '\(name)' generates: "
        + "two queues that share a store must not use the same seed for their randomness"
    )
  }

  /// The average number of tasks that a caller adds before it yields its thread.
  private static let tasksBeforeYielding: UInt64 = 32

  /// Returns whether the caller should now yield its thread to other Swift tasks.
  ///
  /// A store in memory never suspends its callers. Without yielding, a few callers that add one
  /// task after another would occupy all of Swift's threads, and no worker could perform the tasks.
  private func isTimeToYield(after records: some Collection<TaskRecord>) -> Bool {
    // Decide by the random IDs: callers on several threads would contend for a counter.
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
    // Make the handle before any worker can perform the task, so that no outcome is missed.
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
    // Of several new tasks with the same key, only one is stored, and is returned for all of them.
    let kept = records.count > 1 ? try Self.oneOfEachKey(records, policy) : records
    var tasks = kept.map(newTask)
    let areStored = try await store(kept, policy) { results in
      for index in kept.indices {
        // Only a replacement waits. The other outcomes need no asynchronous call.
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
    // Reserve the keys until the outcomes are reported.
    let keys = policy == .replace ? Set(records.compactMap(\.uniqueKey)) : []
    if !keys.isEmpty { try await observers.keyTurns.lock(keys) }
    defer { if !keys.isEmpty { observers.keyTurns.unlock(keys) } }
    observers.prepareEnqueuedEvents(of: records)
    let results: [ChangeOutcome]
    do {
      if policy == .replace {
        results = try await replace(with: records)
      } else {
        results = try await storage.persist(records.map { .insert($0, onDuplicate: policy) })
      }
      guard !results.contains(where: \.isImpossibleForInsertion) else {
        throw UnusableAnswer(results: results, to: records.count)
      }
    } catch {
      observers.withdrawEnqueuedEvents(of: records)
      // During the call, a claim may have skipped the task that was about to be replaced.
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

  /// Stores tasks that replace those with their unique keys.
  ///
  /// If a task with the key is being changed, this waits until that change is reported, and then
  /// asks the store again.
  private func replace(
    with records: some Collection<TaskRecord>
  ) async throws -> [ChangeOutcome] {
    let batch = records.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<QueueStore.maxConflictRetries {
      results = try await storage.persist(batch)
      let twins = results.compactMap(\.keptTwin)
      if twins.isEmpty { return results }
      for twin in twins {
        try await observers.changes.wait(until: .allIsReported, of: twin)
      }
    }
    throw UnusableAnswer(results: results, to: batch.count)
  }

  /// Reports what happened to a new task.
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
      // The replaced task may have an earlier date now, which only the store knows. The next claim
      // returns that date.
      if case .replaced = result { dispatch.lookForWork() }
      return AdmittedTask(handle: observers.outcomes.handle(of: twin), isNew: false)
    case .stale, .superseded, .doneWithConsequences, .unmetDependency, .valueDiffers:
      preconditionFailure("the store returned an outcome that no insertion can have")
    case .done, .identityTaken, .batchRefused:
      break
    }
    observers.events.postEnqueuedEvent(of: record.id)
    upkeep.reportIfUnhandled(record)
    dispatch.becomesAvailable(at: record.availableDate, after: now)
    return nil
  }
}

extension ChangeOutcome {
  /// Whether no insertion can have this outcome.
  fileprivate var isImpossibleForInsertion: Bool {
    switch self {
    case .stale, .superseded, .doneWithConsequences, .valueDiffers: true
    case .done, .replaced, .duplicate, .unmetDependency, .identityTaken, .batchRefused: false
    }
  }

  /// Whether a new task was added without affecting another task.
  fileprivate var isPlainInsertion: Bool { if case .done = self { true } else { false } }

  fileprivate var keptTwin: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}

/// Deduplicates tasks that are added in one call.
extension Enqueuer {
  /// Returns one task for each name and unique key, and all tasks without a unique key.
  ///
  /// With the policy `replace`, the last task with a key replaces the others. With the other
  /// policies, the first one stays.
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
        "two of the new tasks have the same unique key; give each task its own key"
      )
    }
    return kept
  }
}

/// A unique key, and the name to which it belongs.
private struct NamedKey: Hashable {
  let name: ExactText
  let key: ExactText

  init?(_ record: TaskRecord) {
    guard let key = record.uniqueKey else { return nil }
    (name, self.key) = (ExactText(record.name), ExactText(key))
  }
}

extension [AdmittedTask] {
  /// Returns a task for each record, although only the records in `kept` were stored.
  ///
  /// A record that was not stored gets the stored task with the same unique key.
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

/// Handles new tasks that the store refused.
extension Enqueuer {
  /// Returns `true` if the store added the tasks, and `false` if it already has a task with one of
  /// their IDs.
  ///
  /// - Throws: The reason why the store refused the tasks.
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

  /// Returns the error for the first task that was rejected, if there is one.
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

  /// Returns the error for the first task that would wait forever for another one, if there is one.
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
  func enqueue(_ draft: consuming TaskDraft) async throws -> EnqueuedTask {
    EnqueuedTask(try await opened.enqueuer.add(draft), in: self)
  }

  func enqueue(_ drafts: [TaskDraft]) async throws -> [EnqueuedTask] {
    try await opened.enqueuer.add(drafts).map { EnqueuedTask($0, in: self) }
  }

  func enqueue(together body: (inout TaskDrafts) throws -> Void) async throws -> [EnqueuedTask] {
    let tasks = try await opened.enqueuer.add(.reject) { now in
      var drafts = TaskDrafts(for: enqueuer, at: now)
      try body(&drafts)
      return drafts.records
    }
    return tasks.map { EnqueuedTask($0, in: self) }
  }

  /// Adds a batch of tasks, and one that follows when all of them have ended.
  func enqueue<Payload: TaskPayload, Follower: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    _ options: TaskOptions,
    then follower: Follower,
    _ followerOptions: TaskOptions
  ) async throws -> EnqueuedBatch {
    if let key = follower.storedUniqueKey {
      throw TaskQueueError(
        .invalidArgument,
        "the batch's follower has the unique key '\(key)', but a "
          + "follower can't have one: another task with the same key would be kept instead of the "
          + "follower, and would not wait for the batch; remove the unique key"
      )
    }
    let members = payloads.map { TaskDraft($0, nil, options) }
    let last = TaskDraft(follower, nil, followerOptions)
    var tasks = try await enqueue { drafts in
      let id = drafts.nextID()
      for member in members { try drafts.add(member, follower: id) }
      try drafts.add(last, id: id)
    }
    let enqueuedFollower = tasks.removeLast()
    return EnqueuedBatch(tasks: tasks, follower: enqueuedFollower)
  }

  /// Adds tasks to an existing batch.
  func enqueue<Payload: TaskPayload>(
    contentsOf payloads: [Payload],
    options: TaskOptions,
    inBatchBefore follower: TaskID
  ) async throws -> [EnqueuedTask] {
    let members = payloads.map { TaskDraft($0, nil, options) }
    let defaults = configuration.taskDefaults
    let mayWait = members.contains { member in
      let options = member.options
      return member.uniqueKey != nil || !options.dependencies.isEmpty
        || !defaults.dependencies.isEmpty || (options.orderKey ?? defaults.orderKey) != nil
    }
    guard !mayWait else {
      throw TaskQueueError(
        .invalidArgument,
        "a task added to a batch can't have dependencies, an orderKey or a unique key: the task "
          + "and the batch's follower could wait for each other forever; remove them"
      )
    }
    return try await enqueue { drafts in
      for member in members { try drafts.add(member, follower: follower) }
    }
  }

  /// Returns a SQL statement that adds a task.
  func insertStatement(_ draft: consuming TaskDraft) throws -> InsertStatement {
    try checkCanOpen()
    let draft = draft.filled(from: configuration.taskDefaults)
    let now = self.now
    let record = try enqueuer.record(of: draft, id: generators.nextID(at: now), now: now)
    let policy = draft.policy
    guard let statement = try store.insertStatement(for: record, onDuplicate: policy) else {
      throw TaskQueueError(
        .invalidArgument,
        "the store (\(store)) has no SQL statement that adds a task; only a SQLite store and a "
          + "PostgreSQL store have one; call enqueue instead"
      )
    }
    return statement
  }
}
