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
    core.register(AnyHandler(type, perform), HandlerTable.names(of: type), limit)
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
    core.register(AnyHandler(handler), HandlerTable.names(of: Handler.Payload.self), limit)
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
    core.register(AnyHandler(untyped: perform), [name], limit)
  }

  /// Registers the closure that performs every task whose name has no other handler.
  ///
  /// ``TaskContext/name`` is the name of the task. Without a fallback, such tasks stay in the
  /// store.
  public func registerFallback<Output: Sendable>(
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    core.registerFallback(AnyHandler(untyped: perform))
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
    await core.gate.pause(name: name)
  }

  /// Undoes ``pause(name:)``.
  ///
  /// A pause that the store holds stays: ``resume(name:durability:)`` ends it.
  public func resume(name: String) async {
    core.gate.resume(name: name)
  }

  /// The names that were paused and not resumed, in memory or in the store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var pausedNames: Set<String> { core.handlers.pausedNames }
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
    await core.gate.tell(condition, holds: holds)
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
    core.gate.register(monitor, for: condition, interruptsTasks: interruptsTasks)
  }
}

extension TaskQueue {
  /// Why the queue performs no attempt of a task that has not ended, and what to do about it.
  ///
  /// It is `nil` for a task that waits for a date that comes, for other tasks, or for a worker.
  package nonisolated func obstacle(to record: TaskRecord) -> String? {
    core.upkeep.obstacle(to: record)
  }
}
