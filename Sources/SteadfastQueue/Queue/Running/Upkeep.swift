import Synchronization

/// Maintains a queue beside its attempts: conditions, retention, and reports of tasks that nothing
/// performs.
final class Upkeep: QueuePart {
  let services: QueueServices
  let state: Mutex<UpkeepState>

  init(_ services: QueueServices) {
    self.services = services
    state = Mutex(UpkeepState(services.configuration))
  }
}

/// Reports tasks without a handler.
extension Upkeep {
  /// Reports waiting tasks that have no handler.
  ///
  /// Observers get an event for each task. Without observers, the configuration's notice is called
  /// once for each name.
  ///
  /// - Throws: Any error of the store.
  private func reportUnhandledTasks() async throws {
    guard observers.events.isObserved || givesNotices else { return }
    try await reportUnknownConditions()
    guard handlers.room.others == 0 else { return }
    // Names that were reported before would fill the page and hide others.
    let said = observers.events.isObserved ? [] : state.withLock { $0.notice.saidNames }
    let unhandled = try await store.tasks(
      matching: TaskFilter(excludedNames: said.union(handlers.names), states: [.waiting]),
      after: nil,
      limit: 100
    )
    if observers.events.isObserved {
      for record in unhandled { postUnhandled(record) }
    } else if let say = configuration.unhandledNotice {
      let found = Set(unhandled.map(\.name)).sorted()
      for name in state.withLock({ $0.notice.takeUnreportedNames(of: found) }) {
        say(
          "the queue '\(self.name)' has waiting tasks: \(handlers.reasonForNone(named: name))"
        )
      }
    }
  }

  /// Reports waiting tasks with a condition whose state the queue does not know.
  ///
  /// Observers get an event for each task. Without observers, the configuration's notice is called
  /// once for each condition.
  private func reportUnknownConditions() async throws {
    // Conditions that were reported before would fill the page and hide others.
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
      // Tasks without a handler are reported for their names instead.
      for record in waiting where handlers.canPerform(record.name) { postUnhandled(record) }
    } else if let say = configuration.unhandledNotice {
      let conditions = waiting.reduce(into: Set()) { $0.formUnion($1.conditions) }
      let toReport = state.withLock { upkeep in
        upkeep.conditions.takeUnreported(of: upkeep.conditions.unknown(in: conditions))
      }
      for condition in toReport {
        say("the queue '\(name)' has waiting tasks: \(Self.reason(forWaitingFor: condition))")
      }
    }
  }

  static func reason(forWaitingFor condition: TaskCondition) -> String {
    "the queue does not know whether the condition '\(condition)' holds; register a monitor for it, "
      + "or call setCondition(_:holds:)"
  }

  /// Reports tasks without a handler when a run begins.
  ///
  /// - Throws: Any error of the store, if the queue's events are observed.
  func reportUnhandledTasksAtBeginning() async throws {
    if observers.events.isObserved { return try await reportUnhandledTasks() }
    // In later runs, a worker that finds nothing to do reports these tasks. If the look-up fails,
    // the run must not stop for the sake of a notice.
    guard givesNotices, state.withLock({ $0.notice.takeFirstRun() }) else { return }
    reportUselessLimits()
    try? await reportUnhandledTasks()
  }

  /// Gives the configuration's `unhandledNotice` a message for each rate limit without effect: none
  /// of its names has a handler.
  private func reportUselessLimits() {
    for case let names? in configuration.rateLimits.map(\.names)
    where !names.contains(where: handlers.canPerform) {
      let reason = handlers.reasonForNone(named: names[0])
      configuration.unhandledNotice?("a rate limit of the queue '\(name)' has no effect: \(reason)")
    }
  }

  /// Whether to call the configuration's notice about tasks without a handler.
  ///
  /// In a shared store, another process may perform the tasks.
  private var givesNotices: Bool {
    configuration.unhandledNotice != nil && store.sharing == nil
  }

  /// Reports waiting tasks without a handler, if a look is due, after a claim without tasks.
  func reportUnhandledTasksIfDue() async {
    // Observers get an event for each task when it is added.
    guard givesNotices, !observers.events.isObserved else { return }
    guard state.withLock({ $0.notice.takeDueLook() }) else { return }
    // If the store fails, the next claim fails, too.
    try? await reportUnhandledTasks()
  }

  /// Reports a new task without a handler to observers; if there are none, schedules a notice.
  func reportIfUnhandled(_ record: TaskRecord) {
    guard observers.events.isObserved else { return scheduleNoticeIfUnhandled(record) }
    if !handlers.canPerform(record.name) || hasUnknownConditions(record) { postUnhandled(record) }
  }

  /// Schedules a notice about a task that starts to wait, if it has no handler.
  ///
  /// Wake the workers after this call: the next worker that finds nothing to do looks for such
  /// tasks.
  func scheduleNoticeIfUnhandled(_ record: TaskRecord) {
    guard givesNotices else { return }
    if !handlers.canPerform(record.name) {
      state.withLock { $0.notice.makeLookDue(forName: record.name) }
    }
    guard !record.conditions.isEmpty else { return }
    state.withLock {
      if $0.conditions.hasUnreported(in: record.conditions) { $0.notice.makeLookDue() }
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
      handlers.canPerform(record.name)
      ? unknown.sorted().map(Self.reason(forWaitingFor:)).joined(separator: "; ")
      : handlers.reasonForNone(named: record.name)
    observers.events.post(.unhandled(record, reason: reason))
  }

  /// Returns why an unfinished task gets no attempt, and what to do about it.
  ///
  /// Returns `nil` if the task waits only for its date, for other tasks, or for a worker.
  func reasonNotToPerform(_ record: TaskRecord) -> String? {
    if record.state == .paused { return "a task is paused; resume it" }
    if record.state == .suspended { return "a task waits for a completion; complete it" }
    guard handlers.canPerform(record.name) else {
      return handlers.reasonForNone(named: record.name)
    }
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
  /// Returns what to prune now that these tasks have ended.
  func prunings(after settlements: some Collection<Settlement>) -> [TaskChange] {
    // Usually no ended task is retained. Then skip the lock.
    guard settlements.contains(where: \.isKeptEnd) else { return [] }
    return state.withLock { $0.pruning.changes(after: settlements, now: now) }
  }

  /// Returns how many tasks of each name may be claimed within the run's budget, if it has one.
  func roomWithinBudget(_ room: [String: Int]) -> [String: Int] {
    guard dispatch.signals.isPassing.load(ordering: .relaxed) else { return room }
    let now = time.stopwatch()
    return state.withLock { $0.budget?.room(in: room, at: now) ?? room }
  }

  /// Records how long an attempt took, if the run has a budget.
  func recordRunTime(_ time: Duration, of name: String) {
    guard dispatch.signals.isPassing.load(ordering: .relaxed) else { return }
    let (now, wasCutShort) = (self.time.stopwatch(), Task.isCancelled)
    state.withLock { $0.budget?.addRunTime(time, of: name, wasCutShort: wasCutShort, at: now) }
  }
}
