import Synchronization
import SystemFoundation

/// A queue without its public face: its parts, and its runs.
///
/// Each part has one job. A part uses those that are made before it, and none that come after.
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
    occurrences = Occurrences(services, upkeep)
    results = Results(services, upkeep, occurrences)
    enqueuer = Enqueuer(services, upkeep)
    schedules = Schedules(services, upkeep, occurrences, results)
    gate = StartGate(services, upkeep, results)
    claimer = Claimer(gate, schedules)
  }

  /// The queue, when its store is open and it is known what the store says is paused.
  ///
  /// - Throws: What keeps the store from being opened.
  var opened: QueueCore {
    get async throws {
      try checkCanOpen()
      try await store.open()
      if !dispatch.signals.hasReadPause.load(ordering: .acquiring) {
        try await gate.readStoredPause(again: false)
      }
      return self
    }
  }

  /// Checks that the store may be opened.
  ///
  /// - Throws: A ``TaskQueueError`` that says what is wrong with the queue.
  func checkCanOpen() throws {
    try storage.checkCanOpen()
    // Handlers that are under way go on, and so do the calls that they make.
    if handlers.hasRefusal, dispatch.callingTask == nil, let refusal = handlers.refusal {
      throw refusal
    }
  }

  /// Registers a handler for some names; a mistake is thrown by each later call.
  func register(_ handler: AnyHandler, _ names: [String], _ limit: Int?) {
    do {
      try handlers.register(handler, names: names, limit: limit)
    } catch {
      return handlers.refuse(error)
    }
    dispatch.machine.withLock { $0.registered(names, areLimited: limit != nil) }
    dispatch.signals.workers.signal()
  }

  /// Registers the handler for names that have no other one.
  func registerFallback(_ handler: AnyHandler) {
    handlers.registerFallback(handler)
    dispatch.machine.withLock { $0.registeredFallback() }
    dispatch.signals.workers.signal()
  }
}

/// What callers look up.
extension QueueCore {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int?
  ) async throws -> [TaskRecord] {
    if let limit { return try await store.tasks(matching: filter, after: id, limit: max(0, limit)) }
    var found: [TaskRecord] = []
    try await forEachPage(of: filter, after: id) { found += $0 }
    return found
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
      statistics.storeRetries = storage.patientStore?.patience.retryCount ?? 0
      for state in TaskState.allCases {
        let count = try await store.count(matching: TaskFilter(states: [state]))
        if count > 0 { statistics.counts[state] = count }
      }
      let seconds = time.stopwatch() / .seconds(1)
      statistics.throughput = seconds > 0 ? Double(statistics.succeeded) / seconds : 0
      return statistics
    }
  }
}

/// Completions that tasks wait for.
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

  /// Completes with an error what tasks await under a name, and no transfer brings any more.
  ///
  /// - Returns: how many were lost.
  func completeLostTransfers(
    named name: String,
    liveTokens: () async -> Set<TaskToken>
  ) async throws -> Int {
    // What is handed out after this look is not in it, whatever transfers there are then.
    let pending = try await pendingCompletions().filter { $0.name == name && $0.isHandedOut }
    let live = await liveTokens()
    var count = 0
    for pending in pending where !live.contains(pending.token) {
      if try await results.complete(pending.token, failing: TransferLost()) { count += 1 }
    }
    return count
  }
}
