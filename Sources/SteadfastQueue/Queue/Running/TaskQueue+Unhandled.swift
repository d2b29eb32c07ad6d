import Synchronization

/// How people learn of tasks without a handler.
extension TaskQueue {
  /// Tells observers, or once for each name the configuration's notice, of tasks without a handler.
  ///
  /// - Throws: what the store throws.
  nonisolated func tellUnhandled() async throws {
    guard hub.isObserved || givesNotices, handlers.room.others == 0 else { return }
    // Names that were said would fill the page and hide others.
    let said = hub.isObserved ? [] : notice.withLock { $0.saidNames }
    let unhandled = try await store.tasks(
      matching: TaskFilter(excludedNames: said.union(handlers.names), states: [.waiting]),
      after: nil,
      limit: 100
    )
    if hub.isObserved {
      for record in unhandled { postUnhandled(record) }
    } else if let say = configuration.unhandledNotice {
      let found = Set(unhandled.map(\.name)).sorted()
      for name in notice.withLock({ $0.namesToSay(of: found) }) {
        say(
          "the queue '\(self.name)' holds tasks that wait: \(handlers.reasonForNone(named: name))"
        )
      }
    }
  }

  /// A run begins.
  ///
  /// - Throws: what the store throws, if the queue's events are observed.
  nonisolated func tellUnhandledAtBeginning() async throws {
    if hub.isObserved { return try await tellUnhandled() }
    // Later a worker looks that finds nothing to do. A notice must not stop a run.
    guard givesNotices, notice.withLock({ $0.isFirstRun() }) else { return }
    try? await tellUnhandled()
  }

  /// Whether to give notice of tasks without a handler.
  ///
  /// Of a shared store another process may perform it.
  private nonisolated var givesNotices: Bool {
    configuration.unhandledNotice != nil && store.sharing == nil
  }

  /// A worker has claimed, and was handed out nothing.
  nonisolated func foundNothing() async {
    // Observers are told of each task when it is added.
    guard givesNotices, !hub.isObserved else { return }
    guard notice.withLock({ $0.takeDue() }) else { return }
    // A store that fails says so when it is asked for tasks.
    try? await tellUnhandled()
  }

  /// A task was added, and may have no handler.
  nonisolated func noticeAdded(_ record: TaskRecord) {
    let isObserved = hub.isObserved
    guard isObserved || givesNotices, !handlers.canPerform(record.name) else { return }
    if isObserved { postUnhandled(record) } else { notice.withLock { $0.added(record.name) } }
  }

  private nonisolated func postUnhandled(_ record: TaskRecord) {
    hub.announce(record.id)
    hub.post(.unhandled(record, reason: handlers.reasonForNone(named: record.name)))
  }
}
