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
    guard observers.events.isObserved || givesNotices, handlers.room.others == 0 else { return }
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

  /// Reports tasks without a handler when a run begins.
  ///
  /// - Throws: What the store throws, if the queue's events are observed.
  nonisolated func tellUnhandledAtBeginning() async throws {
    if observers.events.isObserved { return try await tellUnhandled() }
    // Later, a worker that finds nothing to do looks for them. A notice must not stop a run.
    guard givesNotices, upkeep.withLock({ $0.notice.isFirstRun() }) else { return }
    try? await tellUnhandled()
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
    if !handlers.canPerform(record.name) { postUnhandled(record) }
  }

  /// Notes for the notice that a task waits from now on, if it has no handler.
  ///
  /// Workers must be woken after this: the next one that finds nothing to do makes the look.
  nonisolated func noteUnhandled(_ record: TaskRecord) {
    guard givesNotices, !handlers.canPerform(record.name) else { return }
    upkeep.withLock { $0.notice.waits(record.name) }
  }

  private nonisolated func postUnhandled(_ record: TaskRecord) {
    observers.events.announce(record.id)
    observers.events.post(.unhandled(record, reason: handlers.reasonForNone(named: record.name)))
  }
}
