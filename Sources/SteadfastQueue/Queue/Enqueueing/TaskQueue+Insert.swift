import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Stores new tasks, and reports them.
extension TaskQueue {
  /// The properties in which a new task differs from others that are added with it.
  struct Draft {
    let name: String
    let payload: StoredPayload
    let uniqueKey: String?

    init(_ name: String, _ payload: StoredPayload, _ uniqueKey: String?) {
      self.name = name
      self.payload = payload
      self.uniqueKey = uniqueKey
    }
  }

  /// Adds a new task, with the options that the call and the payload's type choose for it.
  ///
  /// It makes no arrays but those that the store takes and returns.
  nonisolated func add(
    _ draft: Draft,
    _ options: consuming TaskOptions
  ) async throws -> EnqueuedTask {
    try await open()
    options.fill(from: configuration.taskDefaults)
    let policy = options.onDuplicate ?? .keep
    for _ in 0..<Self.mostDraws {
      let now = self.now
      let id = generators.nextID(at: now)
      let record = try record(of: draft, options, id: id, now: now)
      if let task = try await insert(record, policy, now) {
        if isTimeToYield(after: CollectionOfOne(record)) { await Task.yield() }
        return task
      }
    }
    throw takenIDs
  }

  /// Adds new tasks, with the options that the call and the payload's type choose for all of them.
  nonisolated func add(
    _ drafts: [Draft],
    _ options: consuming TaskOptions
  ) async throws -> [EnqueuedTask] {
    try await open()
    options.fill(from: configuration.taskDefaults)
    guard !drafts.isEmpty else { return [] }
    return try await add(options.onDuplicate ?? .keep) { now in
      try drafts.map { try record(of: $0, options, id: generators.nextID(at: now), now: now) }
    }
  }

  /// Makes the record of a new task, once all options are filled in.
  nonisolated func record(
    of draft: Draft,
    _ options: TaskOptions,
    follower: TaskID? = nil,
    id: TaskID,
    now: Date
  ) throws -> TaskRecord {
    try options.record(
      id: id,
      name: draft.name,
      payload: try forStore(draft.payload),
      uniqueKey: draft.uniqueKey,
      prohibitsBackoff: configuration.prohibitsBackoff,
      follower: follower,
      now: now
    )
  }

  private nonisolated func forStore(_ payload: StoredPayload) throws -> StoredPayload {
    if RealWork.encodesPayloads { return try payload.withoutValue() }
    // Most stores keep bytes, and would have to make other records of these.
    return store.appliesAtOnce ? payload : try payload.encoded()
  }

  /// Adds new tasks, which are made once more if the store holds tasks with their IDs.
  nonisolated func add(
    _ policy: UniquePolicy,
    _ make: (Date) throws -> [TaskRecord]
  ) async throws -> [EnqueuedTask] {
    for _ in 0..<Self.mostDraws {
      let now = self.now
      let records = try make(now)
      if let tasks = try await insert(records, policy, now) {
        if isTimeToYield(after: records) { await Task.yield() }
        return tasks
      }
    }
    throw takenIDs
  }

  /// How often a task gets another ID.
  ///
  /// IDs are random, so a collision means that another queue uses the same seed.
  private static let mostDraws = 8

  private nonisolated var takenIDs: TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) holds tasks with the IDs that the queue '\(name)' draws: two "
        + "queues on one store must not have the same seed as their randomness"
    )
  }

  /// How many tasks a caller adds, on average, before it yields its thread.
  private static let tasksBeforeYielding: UInt64 = 32

  /// Whether a caller yields its thread to other Swift tasks, as it does from time to time.
  ///
  /// A store in memory never suspends its callers. A few callers that add one task after another
  /// would hold all of Swift's threads, and no worker could perform what they add.
  private nonisolated func isTimeToYield(after records: some Collection<TaskRecord>) -> Bool {
    // Decide by the IDs, which are random. Callers on several threads would contend for a counter.
    store.appliesAtOnce
      && records.contains { ($0.id.low >> 16).isMultiple(of: Self.tasksBeforeYielding) }
  }

  /// Stores a new task.
  ///
  /// - Returns: The enqueued task; `nil` if the store holds a task with its ID.
  private nonisolated func insert(
    _ record: TaskRecord,
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> EnqueuedTask? {
    // Make the handle before the task can be performed, so that no outcome is missed.
    var task = newTask(record)
    let isStored = try await store(CollectionOfOne(record), policy) { results in
      if case .replaced(let twin) = results[0] { await observers.tookOver(twin) }
      if let twin = inserted(record, results[0], now) { task = twin }
    }
    return isStored ? task : nil
  }

  /// Stores new tasks.
  ///
  /// - Returns: The enqueued tasks; `nil` if the store holds a task with one of their IDs.
  private nonisolated func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [EnqueuedTask]? {
    // Of several tasks with one key, one is stored, and stands for all of them.
    let kept = records.count > 1 ? try Self.oneOfEachKey(records, policy) : records
    var tasks = kept.map(newTask)
    let areStored = try await store(kept, policy) { results in
      for index in kept.indices {
        // Only this one waits, so that the others need no asynchronous call.
        if case .replaced(let twin) = results[index] { await observers.tookOver(twin) }
        if let twin = inserted(kept[index], results[index], now) { tasks[index] = twin }
      }
    }
    guard areStored else { return nil }
    return kept.count == records.count ? tasks : tasks.standing(for: records, kept)
  }

  /// Stores new tasks, and lets `tell` tell what has become of them.
  ///
  /// - Returns: Whether they are stored; if not, the store holds a task with one of their IDs.
  private nonisolated func store(
    _ records: some Collection<TaskRecord>,
    _ policy: UniquePolicy,
    tell: ([ChangeOutcome]) async -> Void
  ) async throws -> Bool {
    // The turn lasts until what was stored is told.
    let keys = policy == .replace ? turnKeys(of: records) : []
    if !keys.isEmpty { try await observers.keyTurns.begin(keys) }
    defer { if !keys.isEmpty { observers.keyTurns.end(keys) } }
    observers.willEnqueue(records)
    let results: [ChangeOutcome]
    do {
      if policy == .replace {
        results = try await replace(with: records)
      } else {
        results = try await persist(records.map { .insert($0, onDuplicate: policy) })
      }
      guard !results.contains(where: \.isNoneOfInsertion) else {
        throw UnusableAnswer(results: results, to: records.count)
      }
    } catch {
      observers.didNotEnqueue(records)
      // During the call, a claim may have skipped a task that was to be replaced.
      lookForWork()
      throw error
    }
    if !results.allSatisfy(\.isUsual) {
      guard try wereInserted(records, results, policy) else { return false }
    }
    await tell(results)
    return true
  }

  private nonisolated func newTask(_ record: TaskRecord) -> EnqueuedTask {
    EnqueuedTask(handle: observers.outcomes.handle(of: record.id), isNew: true, queue: self)
  }

  /// Stores tasks that replace those with their unique keys.
  ///
  /// If a task that has the key is being changed, this waits until that change is reported, and
  /// then asks the store again.
  private nonisolated func replace(
    with records: some Collection<TaskRecord>
  ) async throws -> [ChangeOutcome] {
    let batch = records.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<Self.mostRefusals {
      results = try await persist(batch)
      let twins = results.compactMap(\.twinThatWasKept)
      if twins.isEmpty { return results }
      for twin in twins {
        try await observers.changes.wait(until: .allIsTold, of: twin)
      }
    }
    throw UnusableAnswer(results: results, to: batch.count)
  }

  /// Reports what happened to a new task.
  ///
  /// - Returns: The twin, if it stays in place of the new task.
  private nonisolated func inserted(
    _ record: TaskRecord,
    _ result: ChangeOutcome,
    _ now: Date
  ) -> EnqueuedTask? {
    switch result {
    case .duplicate(let twin), .replaced(let twin):
      observers.didNotEnqueue(CollectionOfOne(record))
      // The store has chosen the date, which may be earlier than before. A claim returns it.
      if case .replaced = result { lookForWork() }
      return EnqueuedTask(handle: observers.outcomes.handle(of: twin), isNew: false, queue: self)
    case .stale, .superseded, .doneWithConsequences, .unmetDependency, .valueDiffers:
      preconditionFailure("an insertion has an outcome that is none")
    case .done, .identityTaken, .batchRefused:
      break
    }
    observers.events.announce(record.id)
    reportIfUnhandled(record)
    becomesAvailable(at: record.availableDate, after: now)
    return nil
  }
}

extension ChangeOutcome {
  /// Whether no insertion has this outcome.
  fileprivate var isNoneOfInsertion: Bool {
    switch self {
    case .stale, .superseded, .doneWithConsequences, .valueDiffers: true
    case .done, .replaced, .duplicate, .unmetDependency, .identityTaken, .batchRefused: false
    }
  }

  /// Whether a new task was added as it is.
  fileprivate var isUsual: Bool { if case .done = self { true } else { false } }

  fileprivate var twinThatWasKept: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}
