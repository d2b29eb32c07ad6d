import Synchronization
public import SystemFoundation

/// Keeps tasks from starting while they are paused or a condition does not hold.
final class StartGate: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let results: Results

  init(_ results: Results) {
    services = results.services
    upkeep = results.upkeep
    self.results = results
  }
}

/// Pauses this queue only, until it is resumed or freed.
extension StartGate {
  func pause() async {
    await releasePausedTasks { $0.setPaused(true) }
    await waitForLastAttempts()
  }

  func resume() {
    dispatch.machine.withLock { $0.setPaused(false) }
    dispatch.signals.pauseProgress.resumeAll(with: .success(()))
    dispatch.signals.workers.signalAll()
  }

  func pause(name: String) async {
    handlers.pause(name)
    await results.releaseUnstarted { $0.name == name }
  }

  func resume(name: String) {
    handlers.resume(name)
    dispatch.machine.withLock { $0.workArrived() }
    dispatch.signals.workers.signalAll()
  }

  /// Releases the claimed tasks that may not start because of a pause.
  func releasePausedTasks(_ pause: (inout WorkMachine) -> Void = { _ in }) async {
    let unstarted = dispatch.machine.withLock { machine in
      pause(&machine)
      return machine.takeUnstartedDuringPause()
    }
    await results.releaseUnstarted(unstarted)
    dispatch.signals.idleWaiters.notifyOfStep()
  }

  /// Waits until no more attempts can start in spite of the pause, or until cancelled.
  func waitForLastAttempts() async {
    while !Task.isCancelled, dispatch.machine.withLock({ $0.admitsAttempts }) {
      // Cancellation ends the loop.
      try? await dispatch.signals.pauseProgress.wait {
        dispatch.machine.withLock { $0.admitsAttempts } ? nil : .success(())
      }
    }
  }
}

/// Pauses all queues on the store, until they are resumed.
extension StartGate {
  func pause(_ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.pause(at: now) }
    await releasePausedTasks()
    await waitForLastAttempts()
  }

  func resume(_ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.resume() }
  }

  func pause(name: String, _ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.pause(name: name, at: now) }
    await results.releaseUnstarted { $0.name == name }
  }

  func resume(name: String, _ durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.resume(name: name) }
  }

  /// Reads the stored pause, applies it to this queue, and returns it.
  ///
  /// - Throws: What the store throws.
  @discardableResult
  func storedPause() async throws -> StoredPause {
    let (pause, change) = try await withPauseLock { try await readAndApplyPause() }
    await releaseTasks(pausedBy: change)
    return pause
  }

  /// Reads the stored pause, and applies it to this queue, unless this queue has read it before.
  ///
  /// - Throws: What the store throws.
  func readStoredPauseIfUnknown() async throws {
    if dispatch.signals.hasReadPause.load(ordering: .acquiring) { return }
    let change = try await withPauseLock { () -> PauseChange? in
      // If several calls open the queue at the same time, only the first one reads the pause.
      if dispatch.signals.hasReadPause.load(ordering: .acquiring) { return nil }
      return try await readAndApplyPause().change
    }
    if let change { await releaseTasks(pausedBy: change) }
  }

  private func readAndApplyPause() async throws -> (pause: StoredPause, change: PauseChange) {
    let pause = try StoredPause(try await store.value(named: StoredPause.valueName))
    return (pause, apply(pause))
  }

  /// Reads the stored pause, and applies it to this queue; if the store fails, stops the run.
  func followStoredPause() async {
    do {
      try await storedPause()
    } catch is CancellationError where Task.isCancelled {
      // This run was cancelled while another call was using the stored pause. The next run reads
      // it.
    } catch {
      dispatch.fail(error, to: "read the stored pause")
    }
  }

  func changeStoredPause(
    _ durability: Durability,
    _ change: (inout StoredPause) -> Void
  ) async throws {
    let pauseChange = try await withPauseLock {
      var changed = StoredPause()
      try await storage.setValue(named: StoredPause.valueName, durability) { bytes in
        changed = try StoredPause(bytes)
        change(&changed)
        return try changed.bytes
      }
      return apply(changed)
    }
    await releaseTasks(pausedBy: pauseChange)
  }

  /// Calls the body, which reads the stored pause, while no other caller reads or changes it.
  ///
  /// - Throws: What the body throws; `CancellationError` if the caller is cancelled while it waits
  ///   for earlier callers and the store is unavailable.
  private func withPauseLock<Result>(
    _ body: () async throws -> Result
  ) async throws -> Result {
    try await dispatch.signals.pauseLock.lock([StoredPause.valueName])
    defer { dispatch.signals.pauseLock.unlock([StoredPause.valueName]) }
    let result = try await body()
    dispatch.signals.hasReadPause.store(true, ordering: .releasing)
    return result
  }

  /// Releases the claimed tasks that can't start because of a new pause.
  ///
  /// This may take long, so it is not called by the body of `withPauseLock(_:)`.
  private func releaseTasks(pausedBy change: PauseChange) async {
    if change.isPaused { await releasePausedTasks() }
    guard !change.pausedNames.isEmpty else { return }
    await results.releaseUnstarted { change.pausedNames.contains($0.name) }
  }

  /// What a stored pause newly pauses in this queue.
  private struct PauseChange {
    /// Whether the queue is newly paused.
    var isPaused: Bool
    /// The names that are newly paused.
    var pausedNames: Set<String>
  }

  /// Applies the stored pause to this queue, and returns what is newly paused.
  private func apply(_ pause: StoredPause) -> PauseChange {
    let (paused, resumed) = handlers.setStoredPauses(pause.names)
    let isNew = dispatch.machine.withLock { machine in
      if !resumed.isEmpty { machine.workArrived() }
      return machine.setPausedByStore(pause.isWhole)
    }
    if isNew, !pause.isWhole { dispatch.signals.pauseProgress.resumeAll(with: .success(())) }
    if isNew && !pause.isWhole || !resumed.isEmpty { dispatch.signals.workers.signalAll() }
    return PauseChange(isPaused: isNew && pause.isWhole, pausedNames: paused)
  }
}

/// The stored pause of a queue, which applies in every process that uses the store.
public struct StoredPause: Sendable, Hashable {
  /// The name of the value.
  static let valueName = "steadfast.pause"

  /// Whether all tasks of the queue are paused (``TaskQueue/pause(durability:)``).
  public private(set) var isWhole = false
  /// Since when all tasks are paused; `nil` if they are not, or if an earlier version of the
  /// package stored the pause.
  public private(set) var date: Date?
  /// The names whose tasks are paused (``TaskQueue/pause(name:durability:)``).
  public private(set) var names: Set<String> = []
  /// Since when the tasks of each name are paused, by name.
  ///
  /// A name is missing if an earlier version of the package stored the pause.
  public private(set) var dates: [String: Date] = [:]

  init() {}

  mutating func pause(at now: Date) {
    if !isWhole { (isWhole, date) = (true, now) }
  }

  mutating func resume() { (isWhole, date) = (false, nil) }

  mutating func pause(name: String, at now: Date) {
    if names.insert(name).inserted { dates[name] = now }
  }

  mutating func resume(name: String) {
    names.remove(name)
    dates[name] = nil
  }

  /// Decodes a value; `nil` means that nothing is paused.
  ///
  /// - Throws: A ``TaskQueueError`` if the value can't be decoded.
  init(_ bytes: [UInt8]?) throws(TaskQueueError) {
    guard let bytes else { return }
    do {
      let fields = try JSONDecoder().decode(Fields.self, from: Data(bytes))
      isWhole = fields.queue ?? false
      date = fields.since.map(Date.init(timeIntervalSince1970:))
      names = Set(fields.names ?? [])
      for (name, seconds) in zip(fields.names ?? [], fields.dates ?? []) {
        dates[name] = seconds.map(Date.init(timeIntervalSince1970:))
      }
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "this version of the package can't decode the value '\(Self.valueName)', which holds the "
          + "stored pause; nothing has changed: a paused queue stays paused, and a running queue "
          + "keeps running; use the version that stored the pause",
        underlying: error
      )
    }
  }

  /// The bytes of the value, a JSON object; `nil` if nothing is paused.
  ///
  /// The object's keys are always in the same order, so that equal pauses have equal bytes.
  var bytes: [UInt8]? {
    get throws {
      guard isWhole || !names.isEmpty else { return nil }
      let sorted = names.sorted()
      let fields = Fields(
        dates: dates.isEmpty ? nil : sorted.map { dates[$0]?.timeIntervalSince1970 },
        names: names.isEmpty ? nil : sorted,
        queue: isWhole ? true : nil,
        since: date?.timeIntervalSince1970
      )
      return try StableJSON.encode(fields)
    }
  }

  /// The fields of the value.
  ///
  /// Earlier versions know only `names` and `queue`. If they change the pause, the dates are lost.
  private struct Fields: Codable {
    /// The dates of the names, in the same order, in seconds since 1970.
    var dates: [Double?]?
    var names: [String]?
    var queue: Bool?
    /// The date since which the queue is paused, in seconds since 1970.
    var since: Double?
  }
}

/// Sets conditions.
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

  /// Sets whether a condition holds, as a caller or a monitor reports it.
  ///
  /// - Parameters:
  ///   - condition: The condition.
  ///   - holds: Whether it holds.
  ///   - registration: The monitor that reports this; `nil` for a caller.
  /// - Returns: `false` if another monitor has replaced this one, so that its report was ignored;
  ///   otherwise `true`.
  @discardableResult
  func setCondition(
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
    // Release the tasks even if the condition did not hold before: an earlier call may not have
    // released all of them yet, because it is waiting for the claim in flight.
    await results.releaseUnstarted { $0.conditions.contains(condition) }
    guard isNew, registration?.interruptsTasks == true else { return true }
    for worker in dispatch.machine.withLock({ $0.interruptAttempts(requiring: condition) }) {
      dispatch.signals.interrupts[worker].signal()
    }
    return true
  }
}

/// Receives the reports of monitors.
extension StartGate {
  /// Receives the reports of all registered monitors, also of those registered later, until
  /// cancelled.
  func followMonitors() async {
    await withDiscardingTaskGroup { group in
      var last = 0
      while !Task.isCancelled {
        for registration in upkeep.state.withLock({ $0.conditions.registrations(after: last) }) {
          last = registration.number
          group.addTask { await self.followMonitor(of: registration) }
        }
        await dispatch.signals.monitors.wait()
      }
      group.cancelAll()
    }
  }

  private func followMonitor(of registration: ConditionState.Registration) async {
    for await holds in registration.monitor.values() {
      guard await setCondition(registration.condition, holds: holds, by: registration) else {
        break
      }
      markReported(registration)
    }
    markReported(registration)
  }

  private func markReported(_ registration: ConditionState.Registration) {
    upkeep.state.withLock { $0.conditions.markReported(registration) }
    dispatch.signals.conditionsReported.resumeAll(with: .success(()))
  }

  /// Waits until each monitor has reported once, the run is stopping, or the caller is cancelled.
  func waitForMonitors() async {
    while upkeep.state.withLock({ $0.conditions.awaitsMonitors }),
      !dispatch.machine.withLock({ $0.isStopping }), !Task.isCancelled
    {
      // Cancellation ends the loop, and the workers too.
      try? await dispatch.signals.conditionsReported.wait {
        let awaits = upkeep.state.withLock { $0.conditions.awaitsMonitors }
        return awaits && !dispatch.machine.withLock { $0.isStopping } ? nil : .success(())
      }
    }
  }
}
