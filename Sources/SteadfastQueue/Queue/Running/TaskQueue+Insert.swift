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

  /// Adds new tasks, with the options that the call and the payload's type choose for all of them.
  nonisolated func add(
    _ drafts: some Collection<Draft>,
    _ options: consuming TaskOptions
  ) async throws -> [EnqueuedTask] {
    try await open()
    options.fill(from: configuration.taskDefaults)
    let policy = options.onDuplicate ?? .keep
    guard !drafts.isEmpty else { return [] }
    // IDs are random, so a collision means that another queue uses the same seed.
    for _ in 0..<8 {
      let now = self.now
      var records = try drafts.map { draft in
        try options.record(
          id: generators.nextID(at: now),
          name: draft.name,
          // Most stores keep bytes, and would have to make other records of these.
          payload: store.appliesAtOnce ? draft.payload : try draft.payload.encoded(),
          uniqueKey: draft.uniqueKey,
          prohibitsBackoff: configuration.prohibitsBackoff,
          now: now
        )
      }
      if RealWork.encodesPayloads {
        records = try records.map { $0.replacing(payload: try $0.payload.withoutValue()) }
      }
      if let tasks = try await insert(records, policy, now) {
        if isTimeToYield(after: records) { await Task.yield() }
        return tasks
      }
    }
    throw TaskQueueError(
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
  private nonisolated func isTimeToYield(after records: [TaskRecord]) -> Bool {
    // Decide by the IDs, which are random. Callers on several threads would contend for a counter.
    store.appliesAtOnce
      && records.contains { ($0.id.low >> 16).isMultiple(of: Self.tasksBeforeYielding) }
  }

  /// Stores new tasks.
  ///
  /// - Returns: The enqueued tasks; `nil` if the store holds a task with one of their IDs.
  private nonisolated func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [EnqueuedTask]? {
    // Make the handles before the tasks can be performed, so that no outcome is missed.
    var tasks = records.map { record in
      EnqueuedTask(handle: observers.outcomes.handle(of: record.id), isNew: true, queue: self)
    }
    observers.willEnqueue(records)
    let results: [ChangeOutcome]
    do {
      if policy == .replace {
        results = try await replaceInTurn(with: records)
      } else {
        results = try await persist(records.map { .insert($0, onDuplicate: policy) })
        guard !results.contains(.stale) else {
          throw UnusableAnswer(results: results, to: records.count)
        }
      }
    } catch {
      observers.didNotEnqueue(records)
      // During the call, a claim may have skipped a task that was to be replaced.
      lookForWork()
      throw error
    }
    guard !results.contains(.identityTaken) else {
      observers.didNotEnqueue(records)
      return nil
    }
    if policy == .reject, let error = rejection(of: records, results) {
      observers.didNotEnqueue(records)
      throw error
    }
    for index in records.indices {
      if results[index] == .stale, let twin = records.last(withKeyOf: records[index]) {
        observers.didNotEnqueue(records[index...index])
        tasks[index] = EnqueuedTask(
          handle: observers.outcomes.handle(of: twin.id),
          isNew: false,
          queue: self
        )
        continue
      }
      // Only this one waits, so that the others need no asynchronous call.
      if case .replaced(let twin) = results[index] { await observers.replaced(twin) }
      if let twin = inserted(records[index], results[index], now) { tasks[index] = twin }
    }
    return tasks
  }

  /// Returns the error for the first task that was rejected, if there is one.
  private nonisolated func rejection(
    of records: [TaskRecord],
    _ results: [ChangeOutcome]
  ) -> TaskQueueError? {
    for (record, result) in zip(records, results) {
      guard case .duplicate(let twin) = result else { continue }
      return TaskQueueError(
        .duplicate,
        "a task with the unique key '\(record.uniqueKey ?? "")' is there already: \(twin)"
      )
    }
    return nil
  }

  /// Stores tasks that replace the holders of their unique keys, one call at a time for each key.
  private nonisolated func replaceInTurn(with records: [TaskRecord]) async throws -> [ChangeOutcome]
  {
    let keys = Set(records.compactMap(\.uniqueKey))
    guard !keys.isEmpty, !store.appliesAtOnce else { return try await replace(with: records) }
    await observers.keyTurns.begin(keys)
    defer { observers.keyTurns.end(keys) }
    return try await replace(with: records)
  }

  /// How often a store may say that a twin is being changed after this queue is done with it.
  private static let mostRefusals = 1_000

  /// Stores tasks that replace the holders of their unique keys.
  ///
  /// A twin is the task that holds a key. If a twin is being changed, this waits until that change
  /// is reported, and then asks the store again. If several tasks have the same key, only the last
  /// one is stored. The result for the others is `stale`.
  private nonisolated func replace(with records: [TaskRecord]) async throws -> [ChangeOutcome] {
    let kept = records.count > 1 ? Self.lastOfEachKey(records) : records
    let batch = kept.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<Self.mostRefusals {
      results = try await persist(batch)
      if results.contains(.stale) { break }
      let twins = results.compactMap(\.twinThatWasKept)
      guard !twins.isEmpty else {
        guard kept.count < records.count else { return results }
        var found = Dictionary(uniqueKeysWithValues: zip(kept.map(\.id), results))
        return records.map { found.removeValue(forKey: $0.id) ?? .stale }
      }
      for twin in twins { await observers.changes.waitUntilAllIsTold(of: twin) }
    }
    throw UnusableAnswer(results: results, to: batch.count)
  }

  private static func lastOfEachKey(_ records: [TaskRecord]) -> [TaskRecord] {
    var keys: Set<String> = []
    return records.reversed().filter { record in
      record.uniqueKey.map { keys.insert($0).inserted } ?? true
    }.reversed()
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
    case .duplicate(let twin):
      observers.didNotEnqueue(CollectionOfOne(record))
      return EnqueuedTask(handle: observers.outcomes.handle(of: twin), isNew: false, queue: self)
    case .stale:
      preconditionFailure("a task that another one of its batch replaces was told of by itself")
    case .done, .replaced, .identityTaken, .batchRefused:
      break
    }
    observers.events.announce(record.id)
    reportIfUnhandled(record)
    becomesAvailable(at: record.availableDate, after: now)
    return nil
  }
}

extension [TaskRecord] {
  /// Returns the task that has replaced all others of the batch with the same key.
  fileprivate func last(withKeyOf record: TaskRecord) -> TaskRecord? {
    last { $0.uniqueKey == record.uniqueKey }
  }
}

extension ChangeOutcome {
  fileprivate var twinThatWasKept: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}
