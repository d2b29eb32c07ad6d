public import SteadfastQueue
import Synchronization
public import SystemFoundation

/// Performs a task once, and returns how the attempt ended and what a queue would do next.
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
/// The function decides as a queue with this configuration does, but uses none of your queues or
/// stores. The payload is encoded and decoded before the handler gets it, as across a restart. The
/// default backoff has jitter: to expect an exact retry date, pass a configuration with a backoff
/// without jitter.
///
/// An omitted argument defaults to the value in `options`, then to that of the payload's type, then
/// to the `taskDefaults` of the configuration, as when the task is enqueued. Options that decide
/// when an attempt may start, such as a delay or a dependency, have no effect: this attempt starts
/// now.
/// - Parameters:
///   - payload: the payload that the handler gets.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags, metadata.
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

/// Performs a `PerformableTask` once, and returns how the attempt ended and what a queue would do
/// next.
///
/// It works like the function with this name that takes a closure.
/// - Parameters:
///   - payload: the task.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags, metadata.
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

/// Performs a task once with a `TaskHandler`, and returns how the attempt ended and what a queue
/// would do next.
///
/// It works like the function with this name that takes a closure. It also calls the handler's
/// other methods when a queue would: the handler may choose the date of a retry, and restart a task
/// that has no retries left.
/// - Parameters:
///   - payload: the payload that the handler gets.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once; by default it waits.
///   - options: everything else: a time limit, an expiry date, tags, metadata.
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
  chosen.setMissingOptions(from: options)
  chosen.setMissingOptions(from: payload.options)
  chosen.setMissingOptions(from: configuration.taskDefaults)
  let attempted = AttemptedTask(
    payload: try payload.decodedAfterRestart(),
    retryCount: retryCount,
    options: chosen,
    memory: memory
  )
  return try await attempted.perform(by: handler, configuration: configuration, clock: clock)
}

/// How one attempt at a task ended, and what a queue does then.
public struct AttemptResult: Sendable {
  /// What a queue does when an attempt ends.
  @nonexhaustive
  public enum Ending: Sendable, Hashable {
    /// The handler returned: the task has succeeded.
    case succeeded
    /// The handler threw an error, and the task is retried at this date.
    case failed(retryDate: Date)
    /// The task is abandoned: the handler said so, or no retries are left. The reason is the
    /// description of the error.
    case abandoned(reason: String)
    /// The handler snoozed the task until this date, without counting a retry.
    case snoozed(until: Date)
    /// The attempt suspended the task until this date, or until a completion if it is `nil`.
    case suspended(until: Date?)
    /// Something that the task remembers can't be decoded, and the task is parked.
    case parked(reason: String)
  }

  /// What a queue does with the task.
  public let ending: Ending
  /// The error that the handler threw; `nil` if the handler returned.
  public let error: (any Error)?

  /// What the task remembers afterwards; nothing if it has succeeded.
  ///
  /// Give it to the next attempt: `performAttempt(…, remembering: first.memory)`.
  public let memory: TaskMemory

  /// The date of the next attempt; `nil` if the task has ended, or only waits for a completion.
  public var nextDate: Date? {
    switch ending {
    case .failed(let date), .snoozed(let date): date
    case .suspended(let date): date
    case .succeeded, .abandoned, .parked: nil
    }
  }
}

extension AttemptResult.Ending {
  /// Makes the ending that an event reports; `nil` if the event is about something else.
  init?(_ event: TaskEvent) {
    switch event {
    case .succeeded: self = .succeeded
    case .failed(_, _, let date, _): self = .failed(retryDate: date)
    case .abandoned(_, let reason, _): self = .abandoned(reason: reason)
    case .snoozed(_, let date): self = .snoozed(until: date)
    case .suspended(_, let date): self = .suspended(until: date)
    case .unhandled(_, let reason): self = .parked(reason: reason)
    default: return nil
    }
  }
}

/// A task of which a temporary queue performs one attempt.
struct AttemptedTask<Payload: TaskPayload> {
  let payload: Payload
  let retryCount: Int
  /// The caller's options; those that the caller omitted come from the payload or the defaults.
  let options: TaskOptions
  let memory: TaskMemory

  func perform(
    by handler: some TaskHandler<Payload>,
    configuration: TaskQueueConfiguration,
    clock: some WallClock
  ) async throws -> AttemptResult {
    let store = InMemoryStore()
    let task = try record(at: clock.date)
    _ = try await store.apply([.insert(task, onDuplicate: .keep)], durability: .durable)
    try await store.setMemory(of: task, to: memory)
    var configuration = configuration
    let ending = EndingMiddleware()
    configuration.middleware.insert(ending, at: 0)
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    ending.queue.withLock { $0 = queue }
    defer { ending.queue.withLock { $0 = nil } }
    let standIn = StandIn(handler: handler, payload: payload)
    await queue.register(handler: standIn)
    let events = queue.events
    try await queue.run()
    for await event in events {
      guard let ending = AttemptResult.Ending(event) else { continue }
      let memory = try await queue.memory(of: task.id)
      return AttemptResult(ending: ending, error: standIn.thrown.error, memory: memory)
    }
    // The events end early if the caller is cancelled.
    throw CancellationError()
  }

  /// Returns the task's record, without the options that would delay the attempt.
  private func record(at date: Date) throws(TaskQueueError) -> TaskRecord {
    try options.check(path: "")
    return TaskRecord(
      id: TaskID(high: 0x7000, low: 0x8000_0000_0000_0000),
      name: Payload.taskName,
      payload: StoredPayload(Array("{}".utf8), format: .json),
      priority: options.priority ?? .normal,
      createdDate: date,
      maxRetries: options.maxRetries ?? 10,
      usesBackoff: options.usesBackoff ?? true,
      tags: options.tags,
      metadata: options.metadata,
      timeLimit: options.timeLimit,
      expiryDate: options.expiryDate,
      availableDate: date,
      retryCount: retryCount
    )
  }
}

/// A handler that calls a closure and has no hooks.
struct ClosureHandler<Payload: TaskPayload, Output: Sendable>: TaskHandler {
  let closure: @Sendable (Payload, TaskContext) async throws -> Output

  func perform(_ payload: Payload, in context: TaskContext) async throws -> Output {
    try await closure(payload, context)
  }
}

/// Shuts the queue down when the attempt begins, even if other middleware doesn't call the handler.
///
/// The queue must not start another attempt, even if a retry is due at once.
private final class EndingMiddleware: TaskMiddleware {
  let queue = Mutex<TaskQueue?>(nil)

  func perform(_ context: TaskContext, next: AttemptChain) async throws {
    queue.withLock(\.self)?.beginShutDown()
    try await next()
  }
}

/// A handler that ignores the stored payload, and calls another handler with `payload` instead.
private struct StandIn<Handler: TaskHandler>: TaskHandler {
  /// The payload in the store, which has no properties and so can always be decoded.
  struct Payload: TaskPayload {
    static var taskName: String { Handler.Payload.taskName }
  }

  /// Keeps the error that the handler threw.
  final class Thrown: Sendable {
    private let thrown = Mutex<(any Error)?>(nil)

    var error: (any Error)? { thrown.withLock { $0 } }

    func record(_ error: any Error) { thrown.withLock { $0 = error } }
  }

  let handler: Handler
  let payload: Handler.Payload
  let thrown = Thrown()

  func perform(_: Payload, in context: TaskContext) async throws -> Handler.Output {
    do {
      return try await handler.perform(payload, in: context)
    } catch {
      thrown.record(error)
      throw error
    }
  }

  func retryDate(
    of _: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    await handler.retryDate(of: payload, after: error, proposed: date, in: context)
  }

  func shouldRestart(_: Payload, after error: any Error, in context: TaskContext) async -> Bool {
    await handler.shouldRestart(payload, after: error, in: context)
  }

  func willEnd(_: Payload, outcome: TaskOutcome, in context: TaskContext) async {
    await handler.willEnd(payload, outcome: outcome, in: context)
  }
}

extension InMemoryStore {
  /// Stores the memory of a task, as if earlier attempts had stored it.
  fileprivate func setMemory(of task: TaskRecord, to memory: TaskMemory) async throws {
    guard !memory.isEmpty else { return }
    let request = ClaimRequest(limit: 1, names: [task.name: 1], now: task.availableDate)
    for claimed in try await claim(request).tasks {
      let changes = memory.names.compactMap { name in
        memory[name].map { TaskChange.remember(claimed.lease, named: name, value: $0) }
      }
      _ = try await apply(changes, durability: .durable)
      _ = try await apply([.release(claimed.lease)], durability: .durable)
    }
  }
}

extension TaskMemory {
  /// Makes the memory of a task, as if earlier attempts had completed steps and saved a checkpoint.
  ///
  /// ```swift
  /// let attempt = try await performAttempt(
  ///   order,
  ///   remembering: TaskMemory(steps: ["charge": receipt]),
  ///   perform: checkOut
  /// )
  /// #expect(attempt.memory.steps == ["charge", "label"])
  /// ```
  /// - Parameters:
  ///   - steps: the values of the steps, by name. A name may have an argument in brackets, as in
  ///     `pick[7]`. Use `true` for a step without a value.
  ///   - interrupted: the names of interrupted steps that must not be repeated.
  ///   - checkpoint: the last saved checkpoint; by default none.
  /// - Throws: the error of encoding a value.
  public init(
    steps: [String: any Encodable & Sendable] = [:],
    interrupted: [String] = [],
    checkpoint: (any Encodable & Sendable)? = nil
  ) throws {
    self.init()
    for (name, value) in steps { try setValue(value, ofStep: name) }
    for name in interrupted { setInterrupted(step: name) }
    if let checkpoint { try setCheckpoint(checkpoint) }
  }
}
