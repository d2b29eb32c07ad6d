extension TaskQueue {
  /// Registers the closure that performs the tasks of a payload type.
  ///
  /// The closure replaces any closure that was registered for the type before. You can register it
  /// before or after tasks of the type exist; until then, the tasks stay in the store. The closure
  /// returns when the work is done, and throws when it failed:
  /// - An error is a failure, and so is `CancellationError` unless the attempt was cancelled: the
  ///   task is retried after its backoff, and abandoned when its retries are used up.
  /// - A `RetryAwareError` whose `retryDecision` is `.stop` abandons the task, as ``TaskAbandoned``
  ///   does; `.retry(after:)` sets the delay.
  /// - ``TaskSnoozed`` snoozes the task without counting a retry.
  ///
  /// The closure is called on the concurrent executor unless it is isolated to an actor, such as
  /// the main actor. It is called for several tasks at a time if the configuration allows it. When
  /// the run is cancelled, the closure's Swift task is cancelled. If the closure then throws any
  /// error, its task is released and does not count as failed. The closure's return value is passed
  /// to callers that have an ``EnqueuedTask`` (``EnqueuedTask/value(as:)``), and is not stored.
  ///
  /// Each name belongs to only one payload type, so that a handler gets no task of another type. It
  /// is a mistake to register a second type for a name, to use an empty name, or to set a limit
  /// below 1. The handler is then not registered. From then on, each call of the queue that can
  /// throw throws a ``TaskQueueError`` that explains the mistake, and names both types
  /// (``TaskQueueError/Code/nameTaken``). A run in progress continues.
  ///
  /// - Parameters:
  ///   - type: the payload type, which determines the names of its tasks.
  ///   - limit: the maximum number of tasks of each of these names that this queue performs at a
  ///     time, at least 1; by default, only the queue's own limit applies.
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
  ///   - limit: the maximum number of tasks of each of its names that are performed at a time.
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
  ///   - handler: does the work, and is notified when a task fails or ends.
  ///   - limit: the maximum number of tasks of each name that are performed at a time.
  public func register<Handler: TaskHandler>(
    handler: Handler,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    core.register(AnyHandler(handler), HandlerTable.names(of: Handler.Payload.self), limit)
  }

  /// Registers the closure that performs the tasks of a name, with any JSON as their payload.
  ///
  /// - Parameters:
  ///   - name: the name under which the tasks were enqueued.
  ///   - limit: the maximum number of these tasks that are performed at a time.
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

/// Conditions that tasks require (``TaskOptions/conditions``).
extension TaskQueue {
  /// Sets whether a condition holds.
  ///
  /// A condition that was never set does not hold. When a condition starts to hold, workers look
  /// for the tasks that wait for it. When a condition ends, no attempt at a task that requires it
  /// starts after the call has returned. Attempts in progress continue. An attempt is in progress
  /// as soon as its task is assigned to a worker. That is before the handler is called; for a
  /// recurring task, the worker reads from the store in between.
  ///
  /// ```swift
  /// await queue.setCondition("charging", holds: battery.isCharging)
  /// ```
  /// For example, an app can define a condition that it is active. It calls this with `true` when
  /// it becomes active, and with `false` before it resigns active. The setting lasts as long as the
  /// queue object. If the calling Swift task is cancelled, the condition is set nevertheless, but a
  /// task that was already claimed may still start.
  public func setCondition(_ condition: TaskCondition, holds: Bool) async {
    await core.gate.setCondition(condition, holds: holds)
  }

  /// Registers the monitor that reports, while the queue runs, whether a condition holds.
  ///
  /// A run starts when each monitor has reported its condition for the first time. A monitor that
  /// is registered later for the same condition replaces this one. When a monitor's values end, its
  /// last report stays in effect.
  ///
  /// ```swift
  /// await queue.register(NetworkMonitor(), for: .network)
  /// try await queue.enqueue(
  ///   Upload(file),
  ///   options: TaskOptions(conditions: [.network])
  /// )
  /// ```
  /// - Parameters:
  ///   - monitor: the monitor that reports whether the condition holds.
  ///   - condition: the condition.
  ///   - interruptsTasks: whether attempts at tasks that require the condition are interrupted when
  ///     it ends. The handler's Swift task is then cancelled. If the handler throws, the task waits
  ///     for the condition, and no retry is counted. By default, such attempts continue.
  public func register(
    _ monitor: some ConditionMonitor,
    for condition: TaskCondition,
    interruptsTasks: Bool = false
  ) {
    core.gate.register(monitor, for: condition, interruptsTasks: interruptsTasks)
  }
}

extension TaskQueue {
  /// Returns the reason why the queue does not perform an unfinished task, and what to do about it.
  ///
  /// The reason is `nil` for a task that waits for a future date, for other tasks, or for a worker.
  package nonisolated func obstacle(to record: TaskRecord) -> String? {
    core.upkeep.reasonNotToPerform(record)
  }
}
