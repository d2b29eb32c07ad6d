public import SteadfastRetry
public import SystemFoundation

extension TaskContext {
  /// Performs a step once: a later attempt gets the value without performing the step again.
  ///
  /// ```swift
  /// let charge = try await context.step("charge") { step in
  ///   try await bank.charge(order.amount, idempotencyKey: step.key)
  /// }
  /// ```
  /// The value is stored durably before this method returns. In a later attempt, in this process or
  /// another one, this method returns the stored value. A step is identified by its name, not by
  /// its position in the code. So steps may be performed concurrently, and the code may change
  /// between attempts. A stored value whose name no step uses is ignored. See <doc:WorkInSteps>.
  ///
  /// If the process ends before the value is stored, the next attempt performs the step again. If a
  /// service must not do the work twice, send it ``TaskStep/key``, or pass
  /// ``StepRepetition/never``.
  ///
  /// Errors are not stored: if the body throws, this method throws the same error, and the next
  /// attempt performs the step again. No step starts in an attempt that was cancelled. If the
  /// attempt is cancelled during a step, and the body returns a value nevertheless, the value is
  /// stored.
  ///
  /// - Parameters:
  ///   - name: the step's name: 1 to 1,000 bytes of UTF-8. An attempt can use a name only once.
  ///   - item: what the step is for, such as an ID in a loop. The item is appended to the name in
  ///     brackets, as in `pick[7]`.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step. It can't contain another step.
  ///   - ifInterrupted: is called instead of the body if the step must not be repeated, and was
  ///     interrupted. It finds out, for example from the service that does the work, whether the
  ///     work was done. If so, it returns the value; if not, it performs the step. By default, a
  ///     ``StepInterrupted`` is thrown.
  /// - Returns: the value of the step, at most 65,536 bytes as JSON.
  /// - Throws: what the body throws; a ``StepError`` for a name that the attempt has already used,
  ///   or a value that can't be stored; a ``StepInterrupted``; ``TaskSuspended`` if the attempt has
  ///   suspended the task; `CancellationError` if the attempt was cancelled, another queue has
  ///   claimed the task, or the store fails. In the last two cases, the attempt does not count as a
  ///   retry. If the stored value does not have the type `Value`, the task is parked, like a task
  ///   whose payload can't be decoded.
  @discardableResult
  public func step<Value: Codable & Sendable>(
    _ name: String,
    for item: (some CustomStringConvertible)? = String?.none,
    repeats repetition: StepRepetition = .always,
    _ body: (TaskStep) async throws -> Value,
    ifInterrupted: ((TaskStep) async throws -> Value)? = nil
  ) async throws -> Value {
    let step = TaskStep(item.map { "\(name)[\($0)]" } ?? name, of: id)
    let stored = MemoryName.step(step.name)
    try await takeName(step.name, storedAs: stored)
    return try await releasingNameOnError(stored) {
      if let bytes = storedBytes(under: stored) { return try decoded(bytes, step.name) }
      return try await perform(step, stored, repetition, body, ifInterrupted)
    }
  }

  private func perform<Value: Codable & Sendable>(
    _ step: TaskStep,
    _ stored: String,
    _ repetition: StepRepetition,
    _ body: (TaskStep) async throws -> Value,
    _ ifInterrupted: ((TaskStep) async throws -> Value)?
  ) async throws -> Value {
    try Task.checkCancellation()
    let value: Value
    if repetition == .never, storedBytes(under: MemoryName.intent(step.name)) != nil {
      guard let ifInterrupted else { throw StepInterrupted(step: step) }
      value = try await performStep { try await ifInterrupted(step) }
    } else {
      if repetition == .never {
        let intent = MemoryName.intent(step.name)
        try checkSize(of: MemoryName.begun, name: step.name, storedAs: intent)
        try await remember([(intent, MemoryName.begun)])
      }
      value = try await performStep { try await body(step) }
    }
    let bytes = try encoded(value, step.name)
    try checkSize(of: bytes, name: step.name, storedAs: stored)
    try await remember([(stored, bytes)])
    return value
  }

  /// Performs a step without a value once: a later attempt does not perform it again.
  ///
  /// This does the same as ``step(_:for:repeats:_:ifInterrupted:)->_``, but without a value.
  ///
  /// - Parameters:
  ///   - name: the step's name. An attempt can use a name only once.
  ///   - item: what the step is for, which is appended to the name.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step.
  ///   - ifInterrupted: is called instead of the body if the step must not be repeated, and was
  ///     interrupted. It performs the step if the work was not done.
  /// - Throws: the errors of ``step(_:for:repeats:_:ifInterrupted:)->_``.
  public func step(
    _ name: String,
    for item: (some CustomStringConvertible)? = String?.none,
    repeats repetition: StepRepetition = .always,
    _ body: (TaskStep) async throws -> Void,
    ifInterrupted: ((TaskStep) async throws -> Void)? = nil
  ) async throws {
    let ifInterruptedReturningDone = ifInterrupted.map { ifInterrupted in
      { (step: TaskStep) async throws -> Done in
        try await ifInterrupted(step)
        return Done()
      }
    }
    try await self.step(
      name,
      for: item,
      repeats: repetition,
      { step in
        try await body(step)
        return Done()
      },
      ifInterrupted: ifInterruptedReturningDone
    )
  }
}

extension TaskContext {
  /// Always throws, for a body whose value can't be stored.
  ///
  /// Without this method, a call with such a body would call the method for steps without a value,
  /// and the value would be lost.
  ///
  /// The method is marked as deprecated, not as unavailable: the compiler does not choose an
  /// unavailable method if another method matches.
  @_documentation(visibility: internal)
  @available(
    *,
    deprecated,
    message: "a step's value is stored: make its type Codable, or assign it to '_' in the body"
  )
  public func step<Value>(
    _ name: String,
    for item: (some CustomStringConvertible)? = String?.none,
    repeats repetition: StepRepetition = .always,
    _ body: (TaskStep) async throws -> Value,
    ifInterrupted: ((TaskStep) async throws -> Value)? = nil
  ) async throws {
    throw StepError(
      .notEncodable,
      name,
      "the value of '\(name)' has the type \(Value.self), which is not Codable, so it can't be "
        + "stored; make the type Codable, or assign the value to '_' in the body"
    )
  }
}

/// The value that is stored for a step or a completion without a value: `true`.
struct Done: Codable, Sendable {
  init() {}

  // Accepts any stored value: the step may have had a value in an earlier version of the program.
  init(from decoder: any Decoder) {}

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(true)
  }
}

/// A step that is being performed (``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_``).
public struct TaskStep: Sendable, Hashable {
  /// The step's name, with the item that it is for, as in `pick[7]`.
  public let name: String
  /// The ID of the task, a slash, and the step's name; the same in each attempt.
  ///
  /// Use it as the idempotency key for a service that must not do the work twice.
  public let key: String

  init(_ name: String, of id: TaskID) {
    self.name = name
    key = "\(id)/\(name)"
  }
}

/// Whether a step is repeated if it was interrupted.
@nonexhaustive
public enum StepRepetition: Sendable, Hashable {
  /// The step is repeated: it is performed at least once.
  case always
  /// The step is not repeated: it is performed at most once.
  ///
  /// Before the step starts, the queue stores that it will start. If the step throws, or the
  /// process ends before the step's value is stored, it is unknown whether the work was done. The
  /// next attempt calls `ifInterrupted`, or throws a ``StepInterrupted``.
  case never
}

/// The error for a step that can't be performed because of a mistake in the handler.
///
/// If the handler does not catch the error, the task is abandoned, because another attempt would
/// fail in the same way.
public struct StepError: RetryAwareError, CustomStringConvertible {
  /// What is wrong with the step.
  ///
  /// More codes may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The attempt has already used the name; each step needs its own name.
    public static let nameUsedTwice = Code("nameUsedTwice")
    /// The step, sleep, completion or checkpoint is in the body of another step.
    public static let nested = Code("nested")
    /// The name is empty, too long, or has a NUL (U+0000).
    public static let invalidName = Code("invalidName")
    /// The step's value can't be encoded as JSON.
    public static let notEncodable = Code("notEncodable")
    /// The step's value is too large, or the task's memory would become too large.
    ///
    /// The work was done, but its value is not stored.
    public static let tooLarge = Code("tooLarge")
    /// The attempt is over: the context was used after the handler had returned.
    public static let attemptIsOver = Code("attemptIsOver")

    /// The code's name.
    public var description: String { name }
  }

  /// What is wrong with the step.
  public let code: Code
  /// The name of the step.
  public let name: String
  /// What is wrong and what to do about it, for a person to read.
  public let message: String

  init(_ code: Code, _ name: String, _ message: String) {
    self.code = code
    self.name = name
    self.message = message
  }

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// The message.
  public var description: String { message }
}

/// The error for a step that was interrupted, and must not be repeated (``StepRepetition/never``).
///
/// The step started in an earlier attempt, and it is unknown whether its work was done. To find
/// out, pass a closure as `ifInterrupted` to
/// ``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_``. If the handler does not catch this
/// error, the task is abandoned.
public struct StepInterrupted: RetryAwareError, CustomStringConvertible {
  /// The step.
  public let step: TaskStep

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// A message that names the step, and says what to do.
  public var description: String {
    "the step '\(step.name)' was interrupted, and is not repeated; pass 'ifInterrupted:' to find out "
      + "whether its work was done"
  }
}

/// The error that leaves the handler when its task is suspended.
///
/// ``TaskContext/sleep(_:for:)`` and ``TaskContext/completion(_:of:within:_:)`` throw it. Don't
/// catch it, or rethrow it after any cleanup. Whatever the handler returns or throws after that,
/// the task is suspended. The handler is called again when the sleep ends or the completion
/// arrives.
///
/// `withRetry` in a handler does not retry after this error, but throws it at once.
public struct TaskSuspended: RetryAwareError, CustomStringConvertible {
  /// `.stop`, so that `withRetry` in the handler throws the error, and the queue suspends the task.
  public var retryDecision: RetryDecision { .stop }
  /// `the task is suspended`.
  public var description: String { "the task is suspended" }
}

extension StepError: LocalizedError {
  /// The message.
  public var errorDescription: String? { description }
}

extension StepInterrupted: LocalizedError {
  /// The description.
  public var errorDescription: String? { description }
}

extension TaskSuspended: LocalizedError {
  /// The description.
  public var errorDescription: String? { description }
}

extension TaskContext {
  /// Returns the latest checkpoint; `nil` if there is none.
  ///
  /// ```swift
  /// var place = try await context.checkpoint(Place.self) ?? Place(offset: 0)
  /// for try await chunk in file.chunks(from: place.offset) {
  ///   try await sink.write(chunk)
  ///   place.offset += chunk.count
  ///   try await context.save(place)
  /// }
  /// ```
  /// - Parameter type: the type of the checkpoint.
  /// - Returns: the checkpoint; `nil` if none was saved.
  /// - Throws: `CancellationError` if the store fails; the attempt then does not count as a retry.
  ///   ``TaskSuspended`` if the attempt has suspended the task. If the stored checkpoint has
  ///   another type, the task is parked, like a task whose payload can't be decoded.
  public func checkpoint<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self
  ) async throws -> Value? {
    try await takeName("checkpoint", storedAs: MemoryName.checkpoint, isRepeatable: true)
    return try storedBytes(under: MemoryName.checkpoint).map { try decoded($0, "checkpoint") }
  }

  /// Saves the task's progress as a checkpoint, which replaces the previous one.
  ///
  /// With ``Durability/relaxed``, the first checkpoint of an attempt is stored at once. After that,
  /// at most one checkpoint is stored each second. The last checkpoint is stored when the attempt
  /// ends, unless the task has succeeded. So if the process crashes, the progress of at most a
  /// second is lost; if the power fails, more may be lost (``Durability``). With
  /// ``Durability/durable``, the checkpoint is stored when this method returns.
  ///
  /// A checkpoint resets ``TaskContext/interruptionCount``, so that a long transfer is not
  /// abandoned because its process is killed repeatedly.
  ///
  /// If the attempt was cancelled, for example because the queue is shut down, this method stores
  /// the checkpoint, and then throws `CancellationError`. If the handler does not catch that error,
  /// the attempt does not count as a retry, and the next attempt continues from the checkpoint.
  ///
  /// - Parameters:
  ///   - value: the progress; at most 65,536 bytes as JSON.
  ///   - durability: what the checkpoint must survive, and when it is stored.
  /// - Throws: `CancellationError`; a ``StepError`` if the value can't be stored;
  ///   ``TaskSuspended``.
  public func save<Value: Codable & Sendable>(
    _ value: Value,
    durability: Durability = .relaxed
  ) async throws {
    let name = MemoryName.checkpoint
    try await takeName("checkpoint", storedAs: name, isRepeatable: true)
    let bytes = try encoded(value, "checkpoint")
    try checkSize(of: bytes, name: "checkpoint", storedAs: name)
    memory.with(number) { $0.save(bytes) }
    try await writeCheckpoint(durability, isDue: durability == .durable || Task.isCancelled)
    try Task.checkCancellation()
  }

  /// Stores the latest checkpoint, if it is not stored yet.
  ///
  /// Unless `isDue`, at most one checkpoint is stored each second.
  func writeCheckpoint(_ durability: Durability, isDue: Bool) async throws {
    while true {
      let time = queue.time.stopwatch()
      // The checkpoint may already be stored, but not durably, so store it again.
      let again = durability == .durable
      let unsaved = memory.with(number) { memory in
        memory.beginSaving(at: time, isDue: isDue, again: again)
      }
      if let unsaved {
        var isStored = false
        defer { memory.endSaving(number, unsaved, at: time, isStored: isStored) }
        try await remember([(MemoryName.checkpoint, unsaved)], durability)
        isStored = true
        return
      }
      // An earlier checkpoint is being stored. Wait, and then store the latest one.
      guard isDue, memory.with(number, { $0.isSaving }) else { return }
      await memory.waitWhileSaving(inAttempt: number)
    }
  }
}

extension TaskContext {
  /// Suspends the task for a duration, without occupying a worker.
  ///
  /// ```swift
  /// try await context.sleep("before the reminder", for: .seconds(3 * 86_400))
  /// try await mail.remind(order)
  /// ```
  /// The first call stores the date at which the sleep ends, and throws ``TaskSuspended``. The task
  /// is suspended even if the handler catches this error. At that date, the handler is called
  /// again, in this process or another one: its earlier steps return their stored values, and this
  /// method returns. A suspended task keeps its unique key and its position among the tasks with
  /// its order key. If the clock is later set back to before the first call, the sleep starts again
  /// from the current date.
  ///
  /// Start a sleep only after all work that must come before it has ended: when the sleep ends the
  /// attempt, steps that run concurrently are cancelled.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep. An attempt can use a name only once.
  ///   - duration: how long the task sleeps; a negative duration counts as zero.
  /// - Throws: ``TaskSuspended``; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails.
  public func sleep(_ name: String, for duration: Duration) async throws {
    try await sleep(name) { WaitEnd(after: duration, from: $0) }
  }

  /// Suspends the task until a date, as ``sleep(_:for:)`` does for a duration.
  ///
  /// The date is stored by the first call. If a later attempt gives another date, it is ignored.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep. An attempt can use a name only once.
  ///   - date: when the sleep ends.
  /// - Throws: the errors of ``sleep(_:for:)``; a ``TaskQueueError`` for a date that can't be
  ///   stored.
  public func sleep(_ name: String, until date: Date) async throws {
    try TaskQueueError.check(storable: date, "the date of the sleep '\(name)'")
    try await sleep(name) { _ in WaitEnd(at: date.storable) }
  }

  private func sleep(_ name: String, until first: (_ now: Date) -> WaitEnd) async throws {
    let stored = MemoryName.sleep(name)
    try await takeName(name, storedAs: stored)
    let known: WaitEnd? = try storedBytes(under: stored).map { try decoded($0, name) }
    let now = queue.now
    let end = known?.recalculated(at: now) ?? first(now)
    if end != known {
      try Task.checkCancellation()
      let bytes = try encoded(end, name)
      try checkSize(of: bytes, name: name, storedAs: stored)
      try await remember([(stored, bytes)])
    }
    guard end.date > queue.now else { return }
    throw suspend(until: end)
  }
}

/// The date at which a sleep ends, or a wait for a completion times out.
///
/// A date that the handler has chosen is encoded as a number: the seconds since 1970. A date that
/// was calculated from a duration is encoded as two such numbers, in an array: that date, and the
/// date from which it was calculated.
struct WaitEnd: Codable, Equatable, Sendable {
  private(set) var date: Date
  /// The clock's date when `date` was calculated from a duration; `nil` if the handler chose
  /// `date`.
  private(set) var countedFrom: Date?

  init(at date: Date) { self.date = date }

  init(after duration: Duration, from now: Date) {
    date = now.storableDate(after: duration)
    countedFrom = now
  }

  /// Returns the same wait's end, recalculated from `now` if the clock was ahead when it was
  /// calculated: ``countedFrom`` is later than `now`.
  func recalculated(at now: Date) -> WaitEnd {
    guard let countedFrom, countedFrom > now else { return self }
    return WaitEnd(after: .seconds(date.timeIntervalSince(countedFrom)), from: now)
  }

  init(from decoder: any Decoder) throws {
    if let seconds = try? decoder.singleValueContainer().decode(Double.self) {
      self.init(at: Date(timeIntervalSince1970: seconds))
      return
    }
    var list = try decoder.unkeyedContainer()
    self.init(at: Date(timeIntervalSince1970: try list.decode(Double.self)))
    countedFrom = Date(timeIntervalSince1970: try list.decode(Double.self))
  }

  func encode(to encoder: any Encoder) throws {
    guard let countedFrom else {
      var container = encoder.singleValueContainer()
      return try container.encode(date.timeIntervalSince1970)
    }
    var list = encoder.unkeyedContainer()
    try list.encode(date.timeIntervalSince1970)
    try list.encode(countedFrom.timeIntervalSince1970)
  }
}
