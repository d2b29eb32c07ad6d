import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How new tasks are stored, and told.
extension TaskQueue {
  /// What makes a new task different from others that are added with it.
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

  /// Adds new tasks, with what the call and the payload's type have chosen for all of them.
  nonisolated func add(
    _ drafts: some Collection<Draft>,
    _ options: consuming TaskOptions
  ) async throws -> [EnqueuedTask] {
    try await open()
    options.fill(from: configuration.taskDefaults)
    let policy = options.onDuplicate ?? .keep
    guard !drafts.isEmpty else { return [] }
    // Identities are random: that one is taken means that another process draws the same ones.
    for _ in 0..<8 {
      let now = self.now
      var records = try drafts.map { draft in
        try options.record(
          id: ids.withLock { $0.next(at: now) },
          name: draft.name,
          payload: draft.payload,
          uniqueKey: draft.uniqueKey,
          prohibitsBackoff: configuration.prohibitsBackoff,
          now: now
        )
      }
      if RealWork.encodesPayloads {
        records = try records.map { $0.replacing(payload: try $0.payload.withoutValue()) }
      }
      if let tasks = try await insert(records, policy, now) {
        await giveWay(after: records)
        return tasks
      }
    }
    throw TaskQueueError(
      .storeFailed,
      "the store (\(store)) holds tasks with the identities that the queue '\(name)' draws: two "
        + "queues on one store must not have the same seed as their randomness"
    )
  }

  /// How many tasks a caller adds, on average, before it gives way.
  private static let tasksBeforeYielding: UInt64 = 32

  /// Lets others have the thread now and then.
  ///
  /// A store in memory never suspends its callers: a few that add one task after another would hold
  /// all of Swift's threads, and nobody would perform what they add.
  private nonisolated func giveWay(after records: [TaskRecord]) async {
    // Identities are random, and spare a count that those on several threads would contend for.
    guard store.appliesAtOnce,
      records.contains(where: { ($0.id.low >> 16).isMultiple(of: Self.tasksBeforeYielding) })
    else { return }
    await Task.yield()
  }

  /// Has the store keep new tasks; `nil` if it holds tasks with their identities.
  private nonisolated func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [EnqueuedTask]? {
    // Made before the tasks can be performed, so that no outcome is missed.
    var tasks = records.map { record in
      EnqueuedTask(cell: outcomes.cell(of: record.id), isNew: true, queue: self)
    }
    if hub.isObserved { for record in records { hub.willEnqueue(record) } }
    let results: [ChangeOutcome]
    do {
      results = try await keep(records, policy)
    } catch {
      for record in records { hub.didNotEnqueue(record) }
      // A twin that was to be replaced may have been passed over meanwhile.
      lookForWork()
      throw error
    }
    guard !results.contains(.identityTaken) else {
      for record in records { hub.didNotEnqueue(record) }
      return nil
    }
    if policy == .reject, let error = rejection(of: records, results) {
      for record in records { hub.didNotEnqueue(record) }
      throw error
    }
    for index in records.indices {
      if results[index] == .stale, let twin = records.last(withKeyOf: records[index]) {
        hub.didNotEnqueue(records[index])
        tasks[index] = EnqueuedTask(cell: outcomes.cell(of: twin.id), isNew: false, queue: self)
      } else if let twin = await inserted(records[index], results[index], now) {
        tasks[index] = twin
      }
    }
    return tasks
  }

  /// The error for the first task that was rejected, if one was.
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

  /// Has the store keep the tasks.
  private nonisolated func keep(
    _ records: [TaskRecord],
    _ policy: UniquePolicy
  ) async throws -> [ChangeOutcome] {
    if policy == .replace { return try await replaceInTurn(with: records) }
    let results = try await keep(records.map { .insert($0, onDuplicate: policy) })
    guard !results.contains(.stale) else {
      throw UnusableAnswer(results: results, to: records.count)
    }
    return results
  }

  /// Has the store keep tasks that replace those with their keys, one call for a key at a time.
  private nonisolated func replaceInTurn(with records: [TaskRecord]) async throws -> [ChangeOutcome]
  {
    let keys = Set(records.compactMap(\.uniqueKey))
    guard !keys.isEmpty, !store.appliesAtOnce else { return try await replace(with: records) }
    await keyTurns.begin(keys)
    defer { keyTurns.end(keys) }
    return try await replace(with: records)
  }

  /// How often a store may say that a twin is being changed which this queue has done with.
  private static let mostRefusals = 1_000

  /// Has the store keep tasks that replace those with their keys.
  ///
  /// A twin that is just being changed has been changed when that is told: then the store is asked
  /// once more. Of tasks with one key that are to replace one another only the last is stored; the
  /// others are answered with `stale`.
  private nonisolated func replace(with records: [TaskRecord]) async throws -> [ChangeOutcome] {
    let kept = records.count > 1 ? Self.lastOfEachKey(records) : records
    let batch = kept.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<Self.mostRefusals {
      results = try await keep(batch)
      if results.contains(.stale) { break }
      let twins = results.compactMap(\.twinThatWasKept)
      guard !twins.isEmpty else {
        guard kept.count < records.count else { return results }
        var found = Dictionary(uniqueKeysWithValues: zip(kept.map(\.id), results))
        return records.map { found.removeValue(forKey: $0.id) ?? .stale }
      }
      for twin in twins { await changes.waitUntilAllIsTold(of: twin) }
    }
    throw UnusableAnswer(results: results, to: batch.count)
  }

  private static func lastOfEachKey(_ records: [TaskRecord]) -> [TaskRecord] {
    var keys: Set<String> = []
    return records.reversed().filter { record in
      record.uniqueKey.map { keys.insert($0).inserted } ?? true
    }.reversed()
  }

  /// Tells what became of a new task.
  ///
  /// Returns the twin, if that was kept instead.
  private nonisolated func inserted(
    _ record: TaskRecord,
    _ result: ChangeOutcome,
    _ now: Date
  ) async -> EnqueuedTask? {
    switch result {
    case .duplicate(let twin):
      hub.didNotEnqueue(record)
      return EnqueuedTask(cell: outcomes.cell(of: twin), isNew: false, queue: self)
    case .replaced(let twin):
      await changes.waitUntilAllIsTold(of: twin)
      hub.announce(twin)
      outcomes.resolve(twin, .cancelled)
      hub.post(.cancelled(twin))
    case .stale:
      preconditionFailure("a task that another one of its batch replaces was told of by itself")
    case .done, .identityTaken, .batchRefused:
      break
    }
    hub.announce(record.id)
    noticeAdded(record)
    becomesAvailable(at: record.availableDate, after: now)
    return nil
  }
}

extension [TaskRecord] {
  /// The one of a batch that has taken the place of all others with its key.
  fileprivate func last(withKeyOf record: TaskRecord) -> TaskRecord? {
    last { $0.uniqueKey == record.uniqueKey }
  }
}

extension ChangeOutcome {
  fileprivate var twinThatWasKept: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}
