import Synchronization

extension TaskQueue {
  /// Registers the closure that performs the tasks of a payload type.
  ///
  /// It replaces a closure that was registered for that type before. You can register it before or
  /// after tasks of the type exist; until then the tasks stay in the store. The closure returns
  /// when the work is done, and throws when it failed:
  /// - An error is a failure, and so is `CancellationError` unless the attempt was cancelled: the
  ///   task is tried again after its backoff, and abandoned when its retries are used up.
  /// - A `RetryAwareError` whose `retryDecision` is `.stop` abandons the task, as ``TaskAbandoned``
  ///   does; `.retry(after:)` sets the delay.
  /// - ``TaskSnoozed`` snoozes the task without counting a retry.
  ///
  /// The closure is called on the concurrent executor unless it is isolated to an actor, such as
  /// the main actor. It is called for several tasks at a time if the configuration allows. When the
  /// run is cancelled, the closure's Swift task is cancelled. Whatever the closure then throws, its
  /// task is released unharmed. What the closure returns goes to callers that hold the task
  /// (``EnqueuedTask/value(as:)``), and is not stored.
  ///
  /// One name stands for one payload type, so that a handler gets no task of another type. It is a
  /// mistake to register a second type for a name, to use an empty name, or to give a limit below
  /// 1. The handler is then not registered. From then on, each call of the queue that can throw
  /// throws a ``TaskQueueError`` that says why, with both types
  /// (``TaskQueueError/Code/nameTaken``). A run that is under way goes on.
  ///
  /// - Parameters:
  ///   - type: the payload type; it says by which names its tasks are found.
  ///   - limit: how many tasks of each of these names this queue performs at a time, at least 1; by
  ///     default as many as it performs in all.
  ///   - perform: the closure that does the work.
  public func register<Payload: TaskPayload, Output: Sendable>(
    _ type: Payload.Type,
    maxConcurrentTasks limit: Int? = nil,
    perform: @escaping @Sendable (Payload, TaskContext) async throws -> Output
  ) async {
    register(AnyHandler(type, perform), Self.names(of: type), limit)
  }

  /// Registers a payload type whose values perform themselves.
  ///
  /// - Parameters:
  ///   - type: the payload type.
  ///   - limit: how many tasks of each of its names are performed at a time.
  public func register<Payload: PerformableTask>(
    _ type: Payload.Type,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    await register(type, maxConcurrentTasks: limit) { payload, context in
      try await payload.perform(in: context)
    }
  }

  /// Registers a handler with hooks, which performs the tasks of a type.
  ///
  /// - Parameters:
  ///   - handler: does the work, and is asked when a task fails or ends.
  ///   - limit: how many tasks of each of the names are performed at a time.
  public func register<Handler: TaskHandler>(
    handler: Handler,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    register(AnyHandler(handler), Self.names(of: Handler.Payload.self), limit)
  }

  /// Registers the closure that performs the tasks of a name, whatever JSON they carry.
  ///
  /// - Parameters:
  ///   - name: the name that the tasks were enqueued under.
  ///   - limit: how many of them are performed at a time.
  ///   - perform: the closure that does the work.
  public func register<Output: Sendable>(
    name: String,
    maxConcurrentTasks limit: Int? = nil,
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    register(AnyHandler(untyped: perform), [name], limit)
  }

  /// Registers the closure that performs every task whose name has no other handler.
  ///
  /// ``TaskContext/name`` is the name of the task. Without a fallback, such tasks stay in the
  /// store.
  public func registerFallback<Output: Sendable>(
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    handlers.registerFallback(AnyHandler(untyped: perform))
    machine.withLock { $0.registeredFallback() }
    signals.workers.signal()
  }

  private func register(_ handler: AnyHandler, _ names: [String], _ limit: Int?) {
    do {
      try handlers.register(handler, names: names, limit: limit)
    } catch {
      return handlers.refuse(error)
    }
    machine.withLock { $0.registered(names, areLimited: limit != nil) }
    signals.workers.signal()
  }

  /// The names by which tasks of a type are found: the current one and the former ones.
  static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }
}

extension TaskQueue {
  /// Pauses a name: no further attempt of its tasks begins.
  ///
  /// Attempts under way go on, and so do the tasks of other names. When the call returns, no task
  /// of the name is claimed until ``resume(name:)``. If the calling Swift task is cancelled, the
  /// name is paused all the same, but the waiting ends at once. A task that a worker has already
  /// taken may still begin. The name need not have a handler.
  ///
  /// Only this queue pauses the name, and it does so in memory. The pause does not outlast the
  /// process, and other queues on the same store don't know of it. ``pause(name:durability:)``
  /// pauses the name for all of them.
  ///
  /// - Parameter name: the name that the tasks were enqueued under, for example a payload type's
  ///   ``TaskPayload/taskName``. A former name is paused separately.
  public func pause(name: String) async {
    handlers.pause(name)
    await putBackUnbegun { $0.name == name }
  }

  /// Puts back the claimed tasks that are meant and have not begun.
  ///
  /// The claim in flight may hand out further ones, because it was asked for them before. This
  /// waits for it and puts those back, too. If cancelled, it doesn't wait.
  nonisolated func putBackUnbegun(where isMeant: @Sendable (TaskRecord) -> Bool) async {
    await putBack(machine.withLock { $0.takeUnbegun(where: isMeant) })
    if let claim = machine.withLock({ $0.claims.inFlight }) { await waitForEnd(ofClaim: claim) }
    await putBack(machine.withLock { $0.takeUnbegun(where: isMeant) })
  }

  /// Returns when this claim is not in flight any more, or when cancelled.
  private nonisolated func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, machine.withLock({ $0.claims.inFlight == claim }) {
      // Cancelled: the loop ends.
      try? await signals.claimEnd.wait {
        machine.withLock { $0.claims.inFlight == claim } ? nil : .success(())
      }
    }
  }

  /// Undoes ``pause(name:)``.
  ///
  /// A pause that the store holds stays: ``resume(name:durability:)`` ends it.
  public func resume(name: String) async {
    handlers.resume(name)
    machine.withLock { $0.workArrived() }
    signals.workers.signalAll()
  }

  /// The names that were paused and not resumed, in memory or in the store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var pausedNames: Set<String> { handlers.pausedNames }
}

/// What must hold when tasks are performed (``TaskOptions/conditions``).
extension TaskQueue {
  /// Tells the queue whether a condition holds.
  ///
  /// A condition about which the queue was told nothing does not hold. When a condition begins to
  /// hold, workers look for the tasks that waited for it. When it ends, no attempt at a task that
  /// requires it begins any more after the call has returned. Attempts that are under way go on. An
  /// attempt is under way as soon as a worker has taken its task, which is before the handler is
  /// called; for a recurring task, the worker looks into the store in between.
  ///
  /// ```swift
  /// await queue.setCondition("charging", holds: battery.isCharging)
  /// ```
  /// An app can make it a condition that it is active: it calls this with `true` when it becomes
  /// active, and with `false` before it resigns. What the queue is told lasts as long as the queue
  /// object. If the calling Swift task is cancelled, the queue is told all the same, but a task
  /// that was claimed already may still begin.
  public func setCondition(_ condition: TaskCondition, holds: Bool) async {
    await tell(condition, holds: holds)
  }

  /// Registers the monitor that tells, while the queue runs, whether a condition holds.
  ///
  /// A run begins when each monitor has told its condition for the first time. A monitor that is
  /// registered for the same condition later takes its place. A monitor whose values end tells
  /// nothing any more: what it told last stays.
  ///
  /// ```swift
  /// await queue.register(NetworkMonitor(), for: .network)
  /// try await queue.enqueue(
  ///   Upload(file),
  ///   options: TaskOptions(conditions: [.network])
  /// )
  /// ```
  /// - Parameters:
  ///   - monitor: what tells whether the condition holds.
  ///   - condition: the condition.
  ///   - interruptsTasks: whether attempts at tasks that require the condition are cut short when
  ///     it ends. The handler's Swift task is then cancelled. If the handler throws, the task waits
  ///     for the condition, and no retry is counted. By default such attempts go on.
  public func register(
    _ monitor: some ConditionMonitor,
    for condition: TaskCondition,
    interruptsTasks: Bool = false
  ) {
    upkeep.withLock {
      $0.conditions.register(monitor, condition, interruptsTasks: interruptsTasks)
    }
    signals.monitors.signal()
  }

  /// Tells the queue whether a condition holds, as its caller says or a monitor.
  ///
  /// - Returns: Whether the monitor is still the one that is registered.
  @discardableResult
  private nonisolated func tell(
    _ condition: TaskCondition,
    holds: Bool,
    by registration: ConditionState.Registration? = nil
  ) async -> Bool {
    let (isCurrent, isNew) = upkeep.withLock { upkeep in
      if let registration, !upkeep.conditions.isCurrent(registration) { return (false, false) }
      return (true, upkeep.conditions.set(condition, holds: holds))
    }
    guard isCurrent else { return false }
    if holds {
      guard isNew else { return true }
      machine.withLock { $0.workArrived() }
      signals.workers.signalAll()
      return true
    }
    // Another caller may have said the same, and wait for the claim still.
    await putBackUnbegun { $0.conditions.contains(condition) }
    guard isNew, registration?.interruptsTasks == true else { return true }
    for worker in machine.withLock({ $0.releaseAttempts(requiring: condition) }) {
      signals.interrupts[worker].signal()
    }
    return true
  }
}

// MARK: - Monitors

extension TaskQueue {
  /// Follows the registered monitors until cancelled.
  nonisolated func followMonitors() async {
    await withDiscardingTaskGroup { group in
      var last = 0
      while !Task.isCancelled {
        for registration in upkeep.withLock({ $0.conditions.registrations(after: last) }) {
          last = registration.number
          group.addTask { await self.follow(registration) }
        }
        await signals.monitors.wait()
      }
      group.cancelAll()
    }
  }

  private nonisolated func follow(_ registration: ConditionState.Registration) async {
    for await holds in registration.monitor.values() {
      guard await tell(registration.condition, holds: holds, by: registration) else { break }
      noteTold(registration)
    }
    noteTold(registration)
  }

  private nonisolated func noteTold(_ registration: ConditionState.Registration) {
    upkeep.withLock { $0.conditions.hasTold(registration) }
    signals.conditionsTold.resumeAll(with: .success(()))
  }

  /// Waits until each monitor has told its condition, the run is to end, or until cancelled.
  nonisolated func waitForMonitors() async {
    while upkeep.withLock({ $0.conditions.awaitsMonitors }),
      !machine.withLock({ $0.isStopping }), !Task.isCancelled
    {
      // Cancelled: the loop ends, and so do the workers.
      try? await signals.conditionsTold.wait {
        let awaits = upkeep.withLock { $0.conditions.awaitsMonitors }
        return awaits && !machine.withLock { $0.isStopping } ? nil : .success(())
      }
    }
  }
}

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
