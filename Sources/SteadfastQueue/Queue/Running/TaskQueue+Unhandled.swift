import Synchronization

/// Reports tasks without a handler.
extension TaskQueue {
  /// Reports waiting tasks that have no handler.
  ///
  /// Observers get an event for each task. Without observers, the configuration's notice is called
  /// once for each name.
  ///
  /// - Throws: What the store throws.
  nonisolated func tellUnhandled() async throws {
    guard observers.events.isObserved || givesNotices else { return }
    try await tellUnknownConditions()
    guard handlers.room.others == 0 else { return }
    // Names that were reported before would fill the page and hide others.
    let said = observers.events.isObserved ? [] : upkeep.withLock { $0.notice.saidNames }
    let unhandled = try await store.tasks(
      matching: TaskFilter(excludedNames: said.union(handlers.names), states: [.waiting]),
      after: nil,
      limit: 100
    )
    if observers.events.isObserved {
      for record in unhandled { postUnhandled(record) }
    } else if let say = configuration.unhandledNotice {
      let found = Set(unhandled.map(\.name)).sorted()
      for name in upkeep.withLock({ $0.notice.namesToSay(of: found) }) {
        say(
          "the queue '\(self.name)' holds tasks that wait: \(handlers.reasonForNone(named: name))"
        )
      }
    }
  }

  /// Reports waiting tasks with a condition about which the queue was told nothing.
  ///
  /// Observers get an event for each task. Without observers, the configuration's notice is called
  /// once for each condition.
  private nonisolated func tellUnknownConditions() async throws {
    // Conditions that were reported before would fill the page and hide others.
    let isObserved = observers.events.isObserved
    let known = upkeep.withLock { upkeep in
      isObserved
        ? upkeep.conditions.known : upkeep.conditions.known.union(upkeep.conditions.reported)
    }
    let waiting = try await store.tasks(
      matching: TaskFilter(states: [.waiting], unmetBy: known),
      after: nil,
      limit: 100
    )
    if isObserved {
      // The others are reported for their names.
      for record in waiting where handlers.canPerform(record.name) { postUnhandled(record) }
    } else if let say = configuration.unhandledNotice {
      let conditions = waiting.reduce(into: Set()) { $0.formUnion($1.conditions) }
      let toReport = upkeep.withLock { upkeep in
        upkeep.conditions.toReport(of: upkeep.conditions.unknown(in: conditions))
      }
      for condition in toReport {
        say("the queue '\(name)' holds tasks that wait: \(Self.reason(forWaitingFor: condition))")
      }
    }
  }

  private static func reason(forWaitingFor condition: TaskCondition) -> String {
    "the queue was not told whether the condition '\(condition)' holds; register a monitor for it, or "
      + "call setCondition(_:holds:)"
  }

  /// Reports tasks without a handler when a run begins.
  ///
  /// - Throws: What the store throws, if the queue's events are observed.
  nonisolated func tellUnhandledAtBeginning() async throws {
    if observers.events.isObserved { return try await tellUnhandled() }
    // Later, a worker that finds nothing to do looks for them. A notice must not stop a run.
    guard givesNotices, upkeep.withLock({ $0.notice.isFirstRun() }) else { return }
    tellUselessLimits()
    try? await tellUnhandled()
  }

  /// Calls the configuration's notice about each rate limit for names without a handler.
  private nonisolated func tellUselessLimits() {
    for case let names? in configuration.rateLimits.map(\.names)
    where !names.contains(where: handlers.canPerform) {
      let reason = handlers.reasonForNone(named: names[0])
      configuration.unhandledNotice?("a rate limit of the queue '\(name)' has no effect: \(reason)")
    }
  }

  /// Whether to call the configuration's notice about tasks without a handler.
  ///
  /// The tasks of a shared store may be performed by another process.
  private nonisolated var givesNotices: Bool {
    configuration.unhandledNotice != nil && store.sharing == nil
  }

  /// Looks for tasks without a handler, if that is due, after a claim that returned no task.
  nonisolated func foundNothing() async {
    // Observers get an event for each task when it is added.
    guard givesNotices, !observers.events.isObserved else { return }
    guard upkeep.withLock({ $0.notice.takeDue() }) else { return }
    // A store that fails throws when it is asked for tasks, too.
    try? await tellUnhandled()
  }

  /// Reports a new task that has no handler to observers; without them, notes it for the notice.
  nonisolated func reportIfUnhandled(_ record: TaskRecord) {
    guard observers.events.isObserved else { return noteUnhandled(record) }
    if !handlers.canPerform(record.name) || hasUnknownConditions(record) { postUnhandled(record) }
  }

  /// Notes for the notice that a task waits from now on, if it has no handler.
  ///
  /// Workers must be woken after this: the next one that finds nothing to do makes the look.
  nonisolated func noteUnhandled(_ record: TaskRecord) {
    guard givesNotices else { return }
    if !handlers.canPerform(record.name) { upkeep.withLock { $0.notice.waits(record.name) } }
    guard !record.conditions.isEmpty else { return }
    upkeep.withLock { if $0.conditions.isToReport(record.conditions) { $0.notice.lookIsDue() } }
  }

  private nonisolated func hasUnknownConditions(_ record: TaskRecord) -> Bool {
    !record.conditions.isEmpty
      && upkeep.withLock { !$0.conditions.unknown(in: record.conditions).isEmpty }
  }

  private nonisolated func postUnhandled(_ record: TaskRecord) {
    observers.events.announce(record.id)
    let unknown = upkeep.withLock { $0.conditions.unknown(in: record.conditions) }
    let reason =
      handlers.canPerform(record.name)
      ? unknown.sorted().map(Self.reason(forWaitingFor:)).joined(separator: "; ")
      : handlers.reasonForNone(named: record.name)
    observers.events.post(.unhandled(record, reason: reason))
  }

  /// Why the queue performs no attempt of a task that has not ended, and what to do about it.
  ///
  /// It is `nil` for a task that waits for a date that comes, for other tasks, or for a worker.
  package nonisolated func obstacle(to record: TaskRecord) -> String? {
    if record.state == .paused { return "a task is paused; resume it" }
    if record.state == .suspended { return "a task waits for a completion; complete it" }
    guard handlers.canPerform(record.name) else {
      return handlers.reasonForNone(named: record.name)
    }
    if record.state == .parked {
      return "a payload can't be decoded; register a handler that reads it"
    }
    if pausedNames.contains(record.name) { return "the name '\(record.name)' is paused; resume it" }
    let unmet = upkeep.withLock { upkeep in
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
