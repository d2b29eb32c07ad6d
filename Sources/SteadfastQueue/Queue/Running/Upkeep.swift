import Synchronization

/// Work that a queue does besides attempts: it tracks conditions and the run's budget, prunes ended
/// tasks, and warns about tasks that can't start.
final class Upkeep: QueuePart {
  let services: QueueServices
  let state: Mutex<UpkeepState>

  init(_ services: QueueServices) {
    self.services = services
    state = Mutex(UpkeepState(services.configuration))
  }
}

/// Warnings about waiting tasks that have no handler, or a condition that was never set.
///
/// Observers get an event for each such task. Without observers, the configuration's closure
/// `notice` gets a message for each name and each condition, but only once.
extension Upkeep {
  /// Looks up waiting tasks that have no handler or an unknown condition, and reports them.
  private func reportUnhandledTasks() async throws {
    guard observers.events.isObserved || givesWarnings else { return }
    try await reportUnknownConditions()
    // Exclude names that were reported before: the look-up returns only 100 tasks, and these might
    // all have such names.
    let reported = observers.events.isObserved ? [] : state.withLock { $0.warning.reportedNames }
    let handled = handlers.capacities
    let unhandled = try await store.tasks(
      matching: TaskFilter(
        // A fallback handler performs the tasks with all other names.
        names: handled.others > 0 ? Set(handled.payloadVersions.keys) : nil,
        excludedNames: reported,
        states: [.waiting],
        unhandledBy: handled.payloadVersions
      ),
      after: nil,
      limit: 100
    )
    if observers.events.isObserved {
      for record in unhandled { postUnhandled(record) }
    } else if let warn = configuration.notice {
      let found = Dictionary(unhandled.map { ($0.name, $0) }) { first, _ in first }
      for name in state.withLock({ $0.warning.takeUnreportedNames(of: found.keys.sorted()) }) {
        guard let reason = found[name].flatMap(handlers.reasonForNoHandler) else { continue }
        warn("the queue '\(self.name)' has waiting tasks: \(reason)")
      }
    }
  }

  /// Looks up waiting tasks with a condition that was never set, and reports them.
  private func reportUnknownConditions() async throws {
    // Exclude conditions that were reported before, for the same reason as names.
    let isObserved = observers.events.isObserved
    let known = state.withLock { upkeep in
      isObserved
        ? upkeep.conditions.known : upkeep.conditions.known.union(upkeep.conditions.reported)
    }
    let waiting = try await store.tasks(
      matching: TaskFilter(states: [.waiting], unmetBy: known),
      after: nil,
      limit: 100
    )
    if isObserved {
      // `reportUnhandledTasks()` reports the tasks without a handler.
      for record in waiting where handlers.reasonForNoHandler(of: record) == nil {
        postUnhandled(record)
      }
    } else if let warn = configuration.notice {
      let conditions = waiting.reduce(into: Set()) { $0.formUnion($1.conditions) }
      let toReport = state.withLock { upkeep in
        upkeep.conditions.takeUnreported(of: upkeep.conditions.unknown(in: conditions))
      }
      for condition in toReport {
        warn("the queue '\(name)' has waiting tasks: \(Self.reason(forWaitingFor: condition))")
      }
    }
  }

  static func reason(forWaitingFor condition: TaskCondition) -> String {
    "the queue does not know whether the condition '\(condition)' holds; register a monitor for it, "
      + "or call setCondition(_:holds:)"
  }

  /// Reports tasks that the queue can't perform when a run begins.
  ///
  /// - Throws: Any error of the store, if the queue's events are observed.
  func reportUnhandledTasksAtRunStart() async throws {
    // If a look-up fails, the run must not fail only because of a warning.
    if configuration.notice != nil, state.withLock({ $0.warning.takeQueueNameCheck() }) {
      try? await reportTasksOfOtherQueues()
    }
    if observers.events.isObserved { return try await reportUnhandledTasks() }
    // In later runs, a worker that finds nothing to do reports these tasks.
    guard givesWarnings, state.withLock({ $0.warning.takeFirstRun() }) else { return }
    reportUselessLimits()
    try? await reportUnhandledTasks()
  }

  /// Warns if all tasks in the store belong to queues with other names, because the queue may have
  /// had another name when they were added.
  private func reportTasksOfOtherQueues() async throws {
    guard try await !store.contains(TaskFilter()) else { return }
    let filter = TaskFilter(queue: nil, states: TaskState.unfinished)
    let tasks = try await store.tasks(matching: filter, after: nil, limit: 1)
    guard let other = tasks.first.flatMap(otherQueue), queue(named: other) == nil else { return }
    configuration.notice?(
      "the queue '\(name)' has no tasks in \(store), but the queue '\(other)' has some; only a queue "
        + "with the name '\(other)' performs them"
    )
  }

  /// Warns about rate limits that have no effect, because none of their names has a handler.
  private func reportUselessLimits() {
    for case let names? in configuration.rateLimits.map(\.names)
    where !names.contains(where: handlers.canPerform) {
      let reason = handlers.reasonForMissingHandler(named: names[0])
      configuration.notice?("a rate limit of the queue '\(name)' has no effect: \(reason)")
    }
  }

  /// Whether to call the configuration's `notice`.
  ///
  /// Not in a shared store: another process may have a handler for the tasks.
  private var givesWarnings: Bool {
    configuration.notice != nil && store.sharing == nil
  }

  /// Warns about waiting tasks without a handler, if such a task may have been added since the last
  /// warning; call it after a claim without tasks.
  func reportUnhandledTasksIfDue() async {
    // Observers get an event for each task when it is added.
    guard givesWarnings, !observers.events.isObserved else { return }
    guard state.withLock({ $0.warning.takeDueCheck() }) else { return }
    // If the store fails, the next claim fails, too.
    try? await reportUnhandledTasks()
  }

  /// If a new task has no handler, posts an event; without observers, schedules a warning.
  func reportIfUnhandled(_ record: TaskRecord) {
    guard observers.events.isObserved else { return scheduleWarningIfUnhandled(record) }
    if handlers.reasonForNoHandler(of: record) != nil || hasUnknownConditions(record) {
      postUnhandled(record)
    }
  }

  /// If a task that starts to wait has no handler, makes the next worker that finds nothing to do
  /// warn about it.
  ///
  /// Wake a worker after this call.
  func scheduleWarningIfUnhandled(_ record: TaskRecord) {
    guard givesWarnings else { return }
    if handlers.reasonForNoHandler(of: record) != nil {
      state.withLock { $0.warning.makeCheckDue(forName: record.name) }
    }
    guard !record.conditions.isEmpty else { return }
    state.withLock {
      if $0.conditions.hasUnreported(in: record.conditions) { $0.warning.makeCheckDue() }
    }
  }

  private func hasUnknownConditions(_ record: TaskRecord) -> Bool {
    !record.conditions.isEmpty
      && state.withLock { !$0.conditions.unknown(in: record.conditions).isEmpty }
  }

  private func postUnhandled(_ record: TaskRecord) {
    observers.events.postEnqueuedEvent(of: record.id)
    let unknown = state.withLock { $0.conditions.unknown(in: record.conditions) }
    let reason =
      handlers.reasonForNoHandler(of: record)
      ?? unknown.sorted().map(Self.reason(forWaitingFor:)).joined(separator: "; ")
    observers.events.post(.unhandled(record, reason: reason))
  }

  /// Returns why an unfinished task gets no attempt, and what the user can do about it; `nil` if
  /// the task waits only for its date, for other tasks, or for a worker.
  func reasonNotToPerform(_ record: TaskRecord) -> String? {
    if record.state == .paused { return "a task is paused; resume it" }
    if record.state == .suspended { return "a task waits for a completion; complete it" }
    if let reason = handlers.reasonForNoHandler(of: record) { return reason }
    if record.state == .parked {
      return "a payload can't be decoded; register a handler that reads it"
    }
    if handlers.pausedNames.contains(record.name) {
      return "the name '\(record.name)' is paused; resume it"
    }
    let unmet = state.withLock { upkeep in
      let conditions = upkeep.conditions
      return record.conditions.subtracting(conditions.holding).sorted().map {
        conditions.known.contains($0)
          ? "the condition '\($0)' does not hold; call setCondition(_:holds:)"
          : Self.reason(forWaitingFor: $0)
      }
    }
    return unmet.isEmpty ? nil : unmet.joined(separator: "; ")
  }
}

/// Retention, and the budget of a run.
extension Upkeep {
  /// Returns the changes that prune ended tasks, if enough tasks have ended since the last pruning.
  func prunings(after settlements: some Collection<Settlement>) -> [TaskChange] {
    // Usually no ended task is retained. Then skip the lock.
    guard settlements.contains(where: \.retainsEndedTask) else { return [] }
    return state.withLock { $0.pruning.prunings(after: settlements, now: now) }
  }

  /// Returns the maximum number of tasks with each name in a claim, reduced to 0 for names whose
  /// attempts take longer than the rest of the run's budget.
  func claimLimitsWithinBudget(_ limits: [String: Int]) -> [String: Int] {
    guard dispatch.signals.isPassing.load(ordering: .relaxed) else { return limits }
    let now = time.stopwatch()
    return state.withLock { $0.budget?.claimLimits(from: limits, at: now) ?? limits }
  }

  /// Records how long an attempt took, if the run has a budget.
  func recordRunTime(_ time: Duration, of name: String) {
    guard dispatch.signals.isPassing.load(ordering: .relaxed) else { return }
    let (now, wasCutShort) = (self.time.stopwatch(), Task.isCancelled)
    state.withLock { $0.budget?.addRunTime(time, of: name, wasCutShort: wasCutShort, at: now) }
  }
}
