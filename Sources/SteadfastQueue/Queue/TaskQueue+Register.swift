import Synchronization

extension TaskQueue {
  /// Names the closure that performs the tasks of a type, in place of any before for that type.
  ///
  /// It may be registered before or after tasks of the type exist; until then they stay. The
  /// closure returns when the work is done, and throws when it failed:
  /// - An error is a failure, `CancellationError` too unless the attempt was cancelled: the task is
  ///   tried again after its backoff, and abandoned when its retries are used up.
  /// - A `RetryAwareError` whose `retryDecision` is `.stop` abandons the task, as
  ///   ``TaskAbandoned`` does; `.retry(after:)` sets the delay.
  /// - ``TaskSnoozed`` puts the task off without counting.
  ///
  /// It is called on the concurrent executor unless it is isolated to an actor, such as the main
  /// actor, and for several tasks at a time if the configuration allows. When the run is cancelled
  /// its task is cancelled; whatever it then throws, the task is put back unharmed. What it returns
  /// is for those who hold the task (``EnqueuedTask/value(as:)``), and is not stored.
  ///
  /// One name stands for one type of payload, so that no task is given to a handler of another.
  /// Registering a second type for a name that is held is a mistake, as are an empty name and a limit
  /// below 1: the handler is not registered, and from then on each call of the queue that can throw
  /// throws a ``TaskQueueError`` that says why, with both types (``TaskQueueError/Code/nameTaken``).
  /// A run that is under way goes on.
  ///
  /// - Parameters:
  ///   - type: what the tasks carry; it says by which names they are found.
  ///   - limit: how many tasks of each of these names this queue performs at a time, at least 1; by
  ///     default as many as it performs at all.
  ///   - perform: what does the work.
  public func register<Payload: TaskPayload, Output: Sendable>(
    _ type: Payload.Type,
    maxConcurrentTasks limit: Int? = nil,
    perform: @escaping @Sendable (Payload, TaskContext) async throws -> Output
  ) async {
    register(AnyHandler(type, perform), Self.names(of: type), limit)
  }

  /// Names a type whose values perform themselves.
  ///
  /// - Parameters:
  ///   - type: what the tasks carry.
  ///   - limit: how many tasks of each of its names are performed at a time.
  public func register<Payload: PerformableTask>(
    _ type: Payload.Type,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    await register(type, maxConcurrentTasks: limit) { payload, context in
      try await payload.perform(in: context)
    }
  }

  /// Names the handler, with its hooks, that performs the tasks of a type.
  ///
  /// - Parameters:
  ///   - handler: what does the work, and is asked when a task fails or leaves.
  ///   - limit: how many tasks of each of the names are performed at a time.
  public func register<Handler: TaskHandler>(
    handler: Handler,
    maxConcurrentTasks limit: Int? = nil
  ) async {
    register(AnyHandler(handler), Self.names(of: Handler.Payload.self), limit)
  }

  /// Names the closure that performs the tasks of a name, whatever JSON they carry.
  ///
  /// - Parameters:
  ///   - name: what the tasks were enqueued under.
  ///   - limit: how many of them are performed at a time.
  ///   - perform: what does the work.
  public func register<Output: Sendable>(
    name: String,
    maxConcurrentTasks limit: Int? = nil,
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    register(AnyHandler(untyped: perform), [name], limit)
  }

  /// Names the closure that performs every task for whose name nothing else is registered.
  ///
  /// ``TaskContext/name`` says which it is. Without it, such tasks stay.
  public func registerFallback<Output: Sendable>(
    perform: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) async {
    handlers.registerFallback(AnyHandler(untyped: perform))
    machine.withLock { $0.registeredFallback() }
    wake.fire()
  }

  private func register(_ handler: AnyHandler, _ names: [String], _ limit: Int?) {
    do {
      try handlers.register(handler, names: names, limit: limit)
    } catch {
      return handlers.refuse(error)
    }
    machine.withLock { $0.registered(names, areLimited: limit != nil) }
    wake.fire()
  }

  /// The names by which tasks of a type are found.
  static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }
}
