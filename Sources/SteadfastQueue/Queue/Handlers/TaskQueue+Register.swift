extension TaskQueue {
  /// Registers the closure that performs the tasks of a payload type.
  ///
  /// The closure replaces any closure that was registered for the type before. Tasks that were
  /// added earlier stay in the store until a closure is registered. The closure returns when the
  /// work is done, and throws if the work has failed:
  /// - After an error, the task is retried after its backoff, or abandoned if its retries are used
  ///   up. This is also so for `CancellationError`, unless the attempt was cancelled.
  /// - A `RetryAwareError` whose `retryDecision` is `.stop` abandons the task, as ``TaskAbandoned``
  ///   does; `.retry(after:)` sets the delay.
  /// - ``TaskSnoozed`` postpones the task without counting a retry.
  ///
  /// The closure is called on the concurrent executor unless it is isolated to an actor, such as
  /// the main actor. It is called for several tasks at a time if the configuration allows it. When
  /// the run is cancelled, the closure's Swift task is cancelled. If the closure then throws any
  /// error, the attempt does not count, and the task waits again. The closure's return value is
  /// passed to callers that have an ``EnqueuedTask`` (``EnqueuedTask/value(as:)``), and is not
  /// stored.
  ///
  /// A name can belong to only one payload type. If you register a second type for a name, use an
  /// empty name, or set a limit below 1, the closure is not registered. From then on, each call of
  /// the queue that can throw throws a ``TaskQueueError`` that explains this mistake. For a second
  /// type, the code is ``TaskQueueError/Code/nameTaken``. A run in progress continues.
  ///
  /// - Parameters:
  ///   - type: the payload type, which determines the names of its tasks.
  ///   - limit: the maximum number of tasks with each of these names that this queue performs at a
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
  ///   - limit: the maximum number of tasks with each of its names that are performed at a time.
  public func register<Payload: PerformableTask>(
    _ type: Payload.Type,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    await register(type, maxConcurrentTasks: limit) { payload, context in
      try await payload.perform(in: context)
    }
  }

  /// Registers a handler that performs the tasks of a payload type, and is notified when a task
  /// fails or ends.
  ///
  /// - Parameters:
  ///   - handler: the handler, for the payload type `Handler.Payload`.
  ///   - limit: the maximum number of tasks with each of the type's names that are performed at a
  ///     time.
  public func register<Handler: TaskHandler>(
    handler: Handler,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    core.register(AnyHandler(handler), HandlerTable.names(of: Handler.Payload.self), limit)
  }

  /// Registers the closure that performs the tasks with a name, with any JSON as their payload.
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
  /// The closure gets the task's name as ``TaskContext/name``. Without such a closure, tasks whose
  /// names have no handler stay in the store.
  public func registerFallback<Output: Sendable>(
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    core.registerFallback(AnyHandler(untyped: perform))
  }
}

extension TaskQueue {
  /// Sets whether a condition that tasks require holds (``TaskOptions/conditions``).
  ///
  /// A condition that was never set does not hold. When a condition starts to hold, the queue
  /// performs the tasks that wait for it. When a condition stops holding, no attempt at a task that
  /// requires it starts after this call has returned. Attempts in progress continue. An attempt is
  /// in progress as soon as its task is assigned to a worker, which is shortly before the handler
  /// is called.
  ///
  /// ```swift
  /// await queue.setCondition("charging", holds: battery.isCharging)
  /// ```
  /// The setting lasts as long as the queue object. If the calling Swift task is cancelled, the
  /// condition is set nevertheless, but a task that was already claimed may still start.
  public func setCondition(_ condition: TaskCondition, holds: Bool) async {
    await core.gate.setCondition(condition, holds: holds)
  }

  /// Registers the monitor that reports, while the queue runs, whether a condition holds.
  ///
  /// A run performs tasks only when each monitor has reported its condition for the first time. A
  /// monitor that is registered later for the same condition replaces this one. When a monitor
  /// reports nothing more, its last report stays in effect.
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
  ///     the condition stops holding. The handler's Swift task is then cancelled. If the handler
  ///     throws, the task waits for the condition, and no retry is counted. By default, such
  ///     attempts continue.
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
