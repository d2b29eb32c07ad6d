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
