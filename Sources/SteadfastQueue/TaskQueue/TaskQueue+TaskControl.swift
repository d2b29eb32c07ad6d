import Synchronization

/// Control of single tasks, and of all that a filter lets through.
extension TaskQueue {
  /// Takes a task out.
  ///
  /// One that waits is taken out when this returns. One that is being performed has its Swift task
  /// cancelled, which this does not wait for: if the handler then throws, the task is taken out; if
  /// it returns all the same, the task has succeeded. Its outcome is ``TaskOutcome/cancelled``. A
  /// task that another process performs on a shared store is left alone.
  ///
  /// - Returns: whether the task was there and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await ask(.cancel, of: id)
  }

  /// Takes out the tasks that a filter lets through, as ``cancel(_:)`` does, and returns how many.
  ///
  /// Tasks that are added meanwhile may or may not be among them.
  ///
  /// - Throws: what the store throws; then some may have been taken out.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await ask(.cancel, of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Takes out all tasks that have not ended, and returns how many.
  ///
  /// - Throws: as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Sets a task aside until it is resumed or restarted.
  ///
  /// One that is being performed has its Swift task cancelled, and is set aside if the handler then
  /// throws; that counts as no retry.
  ///
  /// - Returns: whether the task was there and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool { try await ask(.pause, of: id) }

  /// Lets a paused task wait again, with the date and the retries that it had.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await open()
    if machine.withLock({ $0.withdrawPause(of: id) }) { return true }
    while let record = try await record(of: id), record.state == .paused {
      let change = TaskChange.resume(id)
      guard try await store.apply([change], durability: .durable)[0] != .done else {
        report(Settlement(change: change, record: record))
        return true
      }
    }
    return false
  }

  /// Lets a task wait again as if it were new, available now, whatever state it is in.
  ///
  /// This is how a dead letter is tried once more, and how a paused task begins anew. One that is
  /// being performed has its Swift task cancelled, and begins anew if the handler then throws.
  ///
  /// - Returns: whether the task was there.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func restart(_ id: TaskID) async throws -> Bool {
    try await ask(.restart, of: id)
  }

  /// Restarts the tasks that a filter lets through, as ``restart(_:)`` does, and returns how many.
  ///
  /// `restart(matching: .deadLetters)` tries all that were given up once more.
  ///
  /// - Throws: what the store throws; then some may have been restarted.
  @discardableResult
  public nonisolated func restart(matching filter: TaskFilter) async throws -> Int {
    try await ask(.restart, of: filter)
  }

  /// Removes a task, one that has ended and is kept too, without a trace.
  ///
  /// One that is being performed has its Swift task cancelled, and is removed if the handler then
  /// throws.
  ///
  /// - Returns: whether the task was there.
  /// - Throws: what the store throws.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await ask(.remove, of: id)
  }

  /// Removes the tasks that a filter lets through, as ``remove(_:)`` does, and returns how many.
  ///
  /// - Throws: what the store throws; then some may have been removed.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await ask(.remove, of: filter)
  }
}

extension TaskQueue {
  private nonisolated func ask(_ directive: Directive, of id: TaskID) async throws -> Bool {
    try await open()
    if let worker = machine.withLock({ $0.request(directive, of: id) }) {
      interrupts[worker].fire()
      return true
    }
    do {
      return try await obey(directive, of: id)
    } catch {
      machine.withLock { _ = $0.takeRequest(of: id) }
      throw error
    }
  }

  private nonisolated func ask(
    _ directive: Directive,
    of filter: TaskFilter
  ) async throws -> Int {
    try await open()
    var count = 0
    var last: TaskID?
    while true {
      let page = try await store.tasks(matching: filter, after: last, limit: 10_000)
      guard let end = page.last else { return count }
      last = end.id
      let changes = page.map { judge.change(directive, of: .unclaimed($0.id), now: now) }
      let outcomes = try await store.apply(changes, durability: .durable)
      for (index, outcome) in outcomes.enumerated() {
        if outcome == .done {
          report(Settlement(change: changes[index], record: page[index]))
          count += 1
        } else if try await ask(directive, of: page[index].id) {
          count += 1
        }
      }
    }
  }

  /// Does what was asked of a task that no worker performs.
  ///
  /// A store that is just changing the task is asked again, when it has. A task that is leased is
  /// on its way to a worker, or from one: the request is kept until it arrives.
  ///
  /// Whether the task was there, and in a state for that.
  nonisolated func obey(_ directive: Directive, of id: TaskID) async throws -> Bool {
    while true {
      guard let record = try await record(of: id), directive.applies(to: record.state) else {
        machine.withLock { _ = $0.takeRequest(of: id) }
        return false
      }
      let change = judge.change(directive, of: .unclaimed(id), now: now)
      if try await store.apply([change], durability: .durable)[0] == .done {
        machine.withLock { _ = $0.takeRequest(of: id) }
        report(Settlement(change: change, record: record))
        return true
      }
      guard record.state == .running else { continue }
      let (worker, isHeld) = machine.withLock { machine in
        let isHeld = machine.mayHold(id)
        if !isHeld { machine.takeRequest(of: id) }
        return (isHeld ? machine.request(directive, of: id) : nil, isHeld)
      }
      if let worker { interrupts[worker].fire() }
      if isHeld { return true }
      // Somebody else performs it; or it has just ended here, and is seen so the next time.
      if store.sharing != nil { return false }
    }
  }

  private nonisolated func record(of id: TaskID) async throws -> TaskRecord? {
    try await store.tasks(matching: TaskFilter(ids: [id]), after: nil, limit: 1).first
  }
}

extension Directive {
  fileprivate func applies(to state: TaskState) -> Bool {
    switch self {
    case .cancel: !state.isFinished
    case .pause: !state.isFinished && state != .paused
    case .restart, .remove: true
    case .release: state == .paused
    }
  }
}
