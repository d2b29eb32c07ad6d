import Synchronization

/// The implementation of a queue, which consists of components with one job each.
///
/// A component uses only components that are made before it.
final class QueueCore: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences
  let results: Results
  let enqueuer: Enqueuer
  let schedules: Schedules
  let gate: StartGate
  let claimer: Claimer

  init(
    _ name: String,
    _ persistence: some Persistence,
    _ configuration: TaskQueueConfiguration,
    _ clock: some WallClock
  ) {
    services = QueueServices(name, persistence, configuration, clock)
    upkeep = Upkeep(services)
    enqueuer = Enqueuer(upkeep)
    occurrences = Occurrences(upkeep)
    results = Results(upkeep)
    schedules = Schedules(results, occurrences)
    gate = StartGate(results)
    claimer = Claimer(gate, schedules)
  }

  /// This queue, once the getter has opened its store and read the stored pause, if necessary.
  ///
  /// - Throws: The error that prevents the store from being opened.
  var opened: QueueCore {
    get async throws {
      try checkCanOpen()
      try await store.open()
      try await gate.readStoredPauseIfUnknown()
      return self
    }
  }

  /// Checks that the queue's name and configuration are valid, and that no handler was refused.
  ///
  /// - Throws: A ``TaskQueueError`` that explains what is wrong with the queue.
  func checkCanOpen() throws {
    try storage.checkCanOpen()
    // A handler that is running continues, so its calls must not throw.
    if handlers.hasRefusal, dispatch.callingTask == nil, let refusal = handlers.firstRefusal {
      throw refusal
    }
  }

  /// Registers a handler for names; if an argument is invalid, each later call of the queue throws.
  func register(_ handler: AnyHandler, _ names: [String], _ limit: Int?) {
    do {
      try handlers.register(handler, names: names, limit: limit)
    } catch {
      return handlers.recordRefusal(error)
    }
    dispatch.machine.withLock { $0.registerHandlers(for: names, areLimited: limit != nil) }
    dispatch.signals.workers.signal()
  }

  /// Registers the handler for all names that have no handler of their own.
  func registerFallback(_ handler: AnyHandler) {
    handlers.registerFallback(handler)
    dispatch.machine.withLock { $0.registerFallback() }
    dispatch.signals.workers.signal()
  }
}

/// Looks up tasks and statistics.
extension QueueCore {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int?,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await store.tasks(
      matching: filter,
      after: id,
      limit: limit,
      newestFirst: newestFirst,
      tasksUpTo: generators.latestID(before: now)
    )
  }

  func census(maxAge: Duration) async throws -> TaskCensus {
    try await services.censuses.census(maxAge: maxAge) { try await ownCensus }
  }

  /// The census of this queue's tasks, without those of the store's other queues.
  private var ownCensus: TaskCensus {
    get async throws {
      let queue = NamedStore.storedName(ofQueue: services.name)
      return try await store.census(at: now).filtered { $0.queue.isExactly(queue) }
    }
  }

  func task(_ id: TaskID) async throws -> EnqueuedTask? {
    let handle = observers.outcomes.handle(of: id)
    guard try await store.contains(TaskFilter(ids: [id])) else { return nil }
    return EnqueuedTask(AdmittedTask(handle: handle, isNew: false), in: self)
  }

  var statistics: QueueStatistics {
    get async throws {
      var statistics = observers.statistics.withLock { $0.statistics }
      statistics.rateLimited = rateLimiting?.usedUpCount ?? 0
      statistics.storeRetries = storage.retryingStore?.retryPolicy.retryCount ?? 0
      for row in try await ownCensus.rows {
        statistics.counts[row.state, default: 0] += row.count
      }
      let seconds = time.stopwatch() / .seconds(1)
      statistics.throughput = seconds > 0 ? Double(statistics.succeeded) / seconds : 0
      return statistics
    }
  }
}

/// Lists the waits that callers can complete, and completes those that are lost.
extension QueueCore {
  func pendingCompletions() async throws -> [PendingCompletion] {
    let filter = TaskFilter(states: TaskState.unfinished, remembers: true)
    var pending: [PendingCompletion] = []
    try await forEachPage(of: filter, after: nil) { page in
      for record in page {
        pending += PendingCompletion.all(of: record, try await store.memory(of: record.id))
      }
    }
    return pending
  }

  /// Completes, with an error, the waits with a name for which no transfer exists any longer.
  ///
  /// - Parameters:
  ///   - name: The name of the waits.
  ///   - liveTokens: Returns the tokens of the waits that existing transfers will complete.
  /// - Returns: The number of waits that were completed.
  /// - Throws: What the store throws.
  func completeLostTransfers(
    named name: String,
    liveTokens: () async -> Set<TaskToken>
  ) async throws -> Int {
    // List the waits before the transfers, so that a transfer that starts in between does not look
    // lost.
    let pending = try await pendingCompletions().filter { $0.name == name && $0.isHandedOut }
    let live = await liveTokens()
    var count = 0
    for pending in pending where !live.contains(pending.token) {
      if try await results.complete(pending.token, failing: TransferLost()) { count += 1 }
    }
    return count
  }
}
