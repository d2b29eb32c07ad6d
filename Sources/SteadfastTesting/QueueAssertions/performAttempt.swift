public import SteadfastQueue

/// Performs a task once, in this call, and returns what a queue would do then.
///
/// ```swift
/// let attempt = try await performAttempt(
///   PostComment(text: "Hi"),
///   retryCount: 10
/// ) { comment, context in
///   try await poster.post(comment, context)
/// }
/// #expect(attempt.ending == .abandoned(reason: "offline"))
/// ```
/// It decides as a queue with this configuration does, but uses none of your queues or stores. The
/// handler gets the payload as it is decoded after a restart. The default backoff has jitter. If
/// the exact retry date matters, pass a configuration with a backoff without jitter.
///
/// An argument that is left out is taken from `options`, then from the payload's type, then from
/// the `taskDefaults` of the configuration, as when the task is enqueued. Options that decide when
/// an attempt may begin, such as a delay or a dependency, have no effect: this one begins now.
/// - Parameters:
///   - payload: the payload that the handler gets.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags.
///   - memory: what the task remembers.
///   - configuration: the configuration of the queue.
///   - clock: the clock that dates are read from; by default that of the current virtual time.
///   - perform: the closure that does the work.
/// - Returns: how the attempt ended. If the closure throws, this function does not.
/// - Throws: `CancellationError` if the caller is cancelled and the closure throws because of that;
///   a ``QueueTestError`` if the payload can't be decoded from its stored bytes; a `TaskQueueError`
///   if the options or the configuration are not valid.
public func performAttempt<Payload: TaskPayload, Output: Sendable>(
  _ payload: Payload,
  retryCount: Int = 0,
  maxRetries: RetryLimit? = nil,
  usesBackoff: Bool? = nil,
  options: TaskOptions = TaskOptions(),
  remembering memory: TaskMemory = TaskMemory(),
  configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
  clock: some WallClock = VirtualTime.current?.clock ?? VirtualClock(),
  perform: @escaping @Sendable (Payload, TaskContext) async throws -> Output
) async throws -> AttemptResult {
  try await performAttempt(
    payload,
    retryCount: retryCount,
    maxRetries: maxRetries,
    usesBackoff: usesBackoff,
    options: options,
    remembering: memory,
    configuration: configuration,
    clock: clock,
    handler: ClosureHandler(closure: perform)
  )
}

/// Performs a performable task once, in this call, and returns what a queue would do then.
///
/// It works like the function of this name that takes a closure.
/// - Parameters:
///   - payload: the task.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags.
///   - memory: what the task remembers.
///   - configuration: the configuration of the queue.
///   - clock: the clock that dates are read from; by default that of the current virtual time.
/// - Returns: how the attempt ended. If the task throws, this function does not.
/// - Throws: the errors of the function that takes a closure.
public func performAttempt<Payload: PerformableTask>(
  _ payload: Payload,
  retryCount: Int = 0,
  maxRetries: RetryLimit? = nil,
  usesBackoff: Bool? = nil,
  options: TaskOptions = TaskOptions(),
  remembering memory: TaskMemory = TaskMemory(),
  configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
  clock: some WallClock = VirtualTime.current?.clock ?? VirtualClock()
) async throws -> AttemptResult {
  try await performAttempt(
    payload,
    retryCount: retryCount,
    maxRetries: maxRetries,
    usesBackoff: usesBackoff,
    options: options,
    remembering: memory,
    configuration: configuration,
    clock: clock
  ) { payload, context in
    try await payload.perform(in: context)
  }
}

/// Performs a task once, in this call, by a handler with hooks, and returns what a queue would do
/// then.
///
/// It works like the function of this name that takes a closure. The hooks are called as a queue
/// calls them: the handler may choose the date of a retry, and restart a task whose retries are
/// used up.
/// - Parameters:
///   - payload: the payload that the handler gets.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags.
///   - memory: what the task remembers.
///   - configuration: the configuration of the queue.
///   - clock: the clock that dates are read from; by default that of the current virtual time.
///   - handler: the handler that performs the task.
/// - Returns: how the attempt ended. If the handler throws, this function does not.
/// - Throws: the errors of the function that takes a closure.
public func performAttempt<Handler: TaskHandler>(
  _ payload: Handler.Payload,
  retryCount: Int = 0,
  maxRetries: RetryLimit? = nil,
  usesBackoff: Bool? = nil,
  options: TaskOptions = TaskOptions(),
  remembering memory: TaskMemory = TaskMemory(),
  configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
  clock: some WallClock = VirtualTime.current?.clock ?? VirtualClock(),
  handler: Handler
) async throws -> AttemptResult {
  var chosen = TaskOptions(maxRetries: maxRetries, usesBackoff: usesBackoff)
  chosen.fill(from: options)
  chosen.fill(from: Handler.Payload.options)
  chosen.fill(from: configuration.taskDefaults)
  let attempted = AttemptedTask(
    payload: try payload.decodedAnew(),
    retryCount: retryCount,
    options: chosen,
    memory: memory
  )
  return try await attempted.perform(by: handler, configuration, clock)
}
