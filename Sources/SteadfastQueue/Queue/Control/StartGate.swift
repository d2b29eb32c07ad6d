import Synchronization
import SystemFoundation

/// Decides what may begin: pauses, in memory and in the store, and conditions.
final class StartGate: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let results: Results

  init(_ services: QueueServices, _ upkeep: Upkeep, _ results: Results) {
    self.services = services
    self.upkeep = upkeep
    self.results = results
  }
}

/// Pauses in memory.
extension StartGate {
  func pause() async {
    await holdBack { $0.setPaused(true) }
    await waitForLastAttempts()
  }

  func resume() {
    dispatch.machine.withLock { $0.setPaused(false) }
    dispatch.signals.pauseProgress.resumeAll(with: .success(()))
    dispatch.signals.workers.signalAll()
  }

  func pause(name: String) async {
    handlers.pause(name)
    await results.putBackUnbegun { $0.name == name }
  }

  func resume(name: String) {
    handlers.resume(name)
    dispatch.machine.withLock { $0.workArrived() }
    dispatch.signals.workers.signalAll()
  }

  /// Puts back the claimed tasks that may not begin because of a pause.
  func holdBack(_ pause: (inout WorkMachine) -> Void = { _ in }) async {
    let unbegun = dispatch.machine.withLock { machine in
      pause(&machine)
      return machine.takeHeldBack()
    }
    await results.putBack(unbegun)
    dispatch.signals.idleWatch.step()
  }

  /// Waits for the attempts that begin although the queue is paused, or until cancelled.
  func waitForLastAttempts() async {
    while !Task.isCancelled, dispatch.machine.withLock({ $0.letsThrough }) {
      // Cancelled: the loop ends.
      try? await dispatch.signals.pauseProgress.wait {
        dispatch.machine.withLock { $0.letsThrough } ? nil : .success(())
      }
    }
  }
}

/// Pauses that the store holds.
extension StartGate {
  func pause(_ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.isWhole = true }
    await holdBack()
    await waitForLastAttempts()
  }

  func resume(_ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.isWhole = false }
  }

  func pause(name: String, _ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.names.insert(name) }
    await results.putBackUnbegun { $0.name == name }
  }

  func resume(name: String, _ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.names.remove(name) }
  }

  /// Reads what the store says is paused, and follows it.
  ///
  /// - Parameter again: whether to read it also if this queue has read it before.
  /// - Throws: What the store throws.
  func readStoredPause(again: Bool = true) async throws {
    let news = try await havingTurnAtPause { () -> PauseNews? in
      // Of many first calls, one reads it.
      if !again, dispatch.signals.hasReadPause.load(ordering: .acquiring) { return nil }
      return follow(try StoredPause(try await store.value(named: StoredPause.valueName)))
    }
    if let news { await putBack(because: news) }
  }

  /// Does what `readStoredPause()` does; a store that fails stops the run.
  func followStoredPause() async {
    do {
      try await readStoredPause()
    } catch is CancellationError where Task.isCancelled {
      // Another call has its turn. The next run reads what is paused.
    } catch {
      dispatch.fail(error, to: "say what is paused")
    }
  }

  func changeStoredPause(
    _ durability: Durability,
    _ change: (inout StoredPause) -> Void
  ) async throws {
    let news = try await havingTurnAtPause {
      var changed = StoredPause()
      try await storage.setValue(named: StoredPause.valueName, durability) { bytes in
        changed = try StoredPause(bytes)
        change(&changed)
        return try changed.bytes
      }
      return follow(changed)
    }
    await putBack(because: news)
  }

  /// Performs the body, which reads the stored pause, when it has its turn.
  ///
  /// - Throws: What the body throws; `CancellationError` when the caller is cancelled before its
  ///   turn, and the store is gone.
  private func havingTurnAtPause<Result>(
    _ body: () async throws -> Result
  ) async throws -> Result {
    try await dispatch.signals.pauseTurns.begin([StoredPause.valueName])
    defer { dispatch.signals.pauseTurns.end([StoredPause.valueName]) }
    let result = try await body()
    dispatch.signals.hasReadPause.store(true, ordering: .releasing)
    return result
  }

  /// Puts back claimed tasks that may not begin any more.
  ///
  /// No other call waits for this: it may take long.
  private func putBack(because news: PauseNews) async {
    if news.isPaused { await holdBack() }
    guard !news.pausedNames.isEmpty else { return }
    await results.putBackUnbegun { news.pausedNames.contains($0.name) }
  }

  /// What a queue has begun to follow.
  private struct PauseNews {
    /// Whether the queue is paused now, and was not before.
    var isPaused: Bool
    /// The names that are paused now, and were not before.
    var pausedNames: Set<String>
  }

  /// Begins to follow what the store says is paused.
  private func follow(_ pause: StoredPause) -> PauseNews {
    let (paused, resumed) = handlers.setStoredPauses(pause.names)
    let isNew = dispatch.machine.withLock { machine in
      if !resumed.isEmpty { machine.workArrived() }
      return machine.setPausedByStore(pause.isWhole)
    }
    if isNew, !pause.isWhole { dispatch.signals.pauseProgress.resumeAll(with: .success(())) }
    if isNew && !pause.isWhole || !resumed.isEmpty { dispatch.signals.workers.signalAll() }
    return PauseNews(isPaused: isNew && pause.isWhole, pausedNames: paused)
  }
}

/// What is paused for all queues on a store: a value of the store.
///
/// The value is a JSON object, or is not there if nothing is paused. Its keys have one order, so
/// that what is the same has the same bytes.
struct StoredPause: Sendable, Equatable {
  /// The name of the value.
  static let valueName = "steadfast.pause"

  /// Whether everything is paused.
  var isWhole = false
  /// The names whose tasks are paused.
  var names: Set<String> = []

  init() {}

  /// Reads a value; `nil` says that nothing is paused.
  ///
  /// - Throws: A ``TaskQueueError`` if the value makes no sense.
  init(_ bytes: [UInt8]?) throws(TaskQueueError) {
    guard let bytes else { return }
    do {
      let fields = try JSONDecoder().decode(Fields.self, from: Data(bytes))
      isWhole = fields.queue ?? false
      names = Set(fields.names ?? [])
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "the value '\(Self.valueName)' of the store does not say what is paused: this version can't "
          + "read it, and takes nothing for resumed",
        underlying: error
      )
    }
  }

  /// The bytes of the value; `nil` if nothing is paused.
  var bytes: [UInt8]? {
    get throws {
      guard isWhole || !names.isEmpty else { return nil }
      let fields = Fields(
        names: names.isEmpty ? nil : names.sorted(),
        queue: isWhole ? true : nil
      )
      return try StableJSON.encode(fields)
    }
  }

  private struct Fields: Codable {
    var names: [String]?
    var queue: Bool?
  }
}

/// Conditions.
extension StartGate {
  func register(
    _ monitor: some ConditionMonitor,
    for condition: TaskCondition,
    interruptsTasks: Bool
  ) {
    upkeep.state.withLock {
      $0.conditions.register(monitor, condition, interruptsTasks: interruptsTasks)
    }
    dispatch.signals.monitors.signal()
  }

  /// Tells the queue whether a condition holds, as its caller says or a monitor.
  ///
  /// - Returns: Whether the monitor is still the one that is registered.
  @discardableResult
  func tell(
    _ condition: TaskCondition,
    holds: Bool,
    by registration: ConditionState.Registration? = nil
  ) async -> Bool {
    let (isCurrent, isNew) = upkeep.state.withLock { upkeep in
      if let registration, !upkeep.conditions.isCurrent(registration) { return (false, false) }
      return (true, upkeep.conditions.set(condition, holds: holds))
    }
    guard isCurrent else { return false }
    if holds {
      guard isNew else { return true }
      dispatch.machine.withLock { $0.workArrived() }
      dispatch.signals.workers.signalAll()
      return true
    }
    // Another caller may have said the same, and wait for the claim still.
    await results.putBackUnbegun { $0.conditions.contains(condition) }
    guard isNew, registration?.interruptsTasks == true else { return true }
    for worker in dispatch.machine.withLock({ $0.releaseAttempts(requiring: condition) }) {
      dispatch.signals.interrupts[worker].signal()
    }
    return true
  }
}

/// Monitors of conditions.
extension StartGate {
  /// Follows the registered monitors until cancelled.
  func followMonitors() async {
    await withDiscardingTaskGroup { group in
      var last = 0
      while !Task.isCancelled {
        for registration in upkeep.state.withLock({ $0.conditions.registrations(after: last) }) {
          last = registration.number
          group.addTask { await self.follow(registration) }
        }
        await dispatch.signals.monitors.wait()
      }
      group.cancelAll()
    }
  }

  private func follow(_ registration: ConditionState.Registration) async {
    for await holds in registration.monitor.values() {
      guard await tell(registration.condition, holds: holds, by: registration) else { break }
      noteTold(registration)
    }
    noteTold(registration)
  }

  private func noteTold(_ registration: ConditionState.Registration) {
    upkeep.state.withLock { $0.conditions.hasTold(registration) }
    dispatch.signals.conditionsTold.resumeAll(with: .success(()))
  }

  /// Waits until each monitor has told its condition, the run is to end, or until cancelled.
  func waitForMonitors() async {
    while upkeep.state.withLock({ $0.conditions.awaitsMonitors }),
      !dispatch.machine.withLock({ $0.isStopping }), !Task.isCancelled
    {
      // Cancelled: the loop ends, and so do the workers.
      try? await dispatch.signals.conditionsTold.wait {
        let awaits = upkeep.state.withLock { $0.conditions.awaitsMonitors }
        return awaits && !dispatch.machine.withLock { $0.isStopping } ? nil : .success(())
      }
    }
  }
}
