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
  /// The value is stored durably before this returns. In a later attempt, in this process or
  /// another one, this returns the stored value. A step is identified by its name, not by its
  /// position in the code, so steps may be performed concurrently, and the code may change between
  /// attempts. A stored value whose name no step uses is ignored. See <doc:WorkInSteps>.
  ///
  /// If the process ends before the value is stored, the next attempt performs the step again. If a
  /// service must not do the work twice, send it ``TaskStep/key``, or pass
  /// ``StepRepetition/never``.
  ///
  /// Errors are not stored: if the body throws, this throws the same error, and the next attempt
  /// performs the step again. No step starts in an attempt that was cancelled. If a body returns
  /// although it was cancelled, its value is stored.
  ///
  /// - Parameters:
  ///   - name: the step's name: 1 to 1,000 bytes of UTF-8. An attempt can use a name only once.
  ///   - item: the item that the step is for, such as an ID in a loop. It becomes a part of the
  ///     name, in brackets.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step. It can't contain another step.
  ///   - ifInterrupted: for a step that is not repeated: asks the other side whether the work was
  ///     done. If so, returns the value; if not, performs the step. By default, a
  ///     ``StepInterrupted`` is thrown.
  /// - Returns: the value of the step, at most 65,536 bytes as JSON.
  /// - Throws: what the body throws; a ``StepError`` for a name that the attempt has already used,
  ///   or a value that can't be stored; a ``StepInterrupted``; ``TaskSuspended`` if the attempt has
  ///   suspended the task; `CancellationError` if the attempt was cancelled, another queue has
  ///   claimed the task, or the store fails. In the last two cases, the attempt is not counted. If
  ///   the stored value does not have the type `Value`, the task is parked, like one whose payload
  ///   can't be decoded.
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
    try await beginUse(of: step.name, storedAs: stored)
    return try await using(stored) {
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
      value = try await inStep { try await ifInterrupted(step) }
    } else {
      if repetition == .never {
        let intent = MemoryName.intent(step.name)
        try checkSize(of: MemoryName.begun, name: step.name, storedAs: intent)
        try await remember([(intent, MemoryName.begun)])
      }
      value = try await inStep { try await body(step) }
    }
    let bytes = try encoded(value, step.name)
    try checkSize(of: bytes, name: step.name, storedAs: stored)
    try await remember([(stored, bytes)])
    return value
  }

  /// Performs a step without a value once: a later attempt does not perform it again.
  ///
  /// Otherwise, this does the same as the method with a value.
  ///
  /// - Parameters:
  ///   - name: the step's name.
  ///   - item: the item that the step is for, which becomes a part of the name.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step.
  ///   - ifInterrupted: for a step that is not repeated: ensures that the work was done.
  /// - Throws: the errors of the method with a value.
  public func step(
    _ name: String,
    for item: (some CustomStringConvertible)? = String?.none,
    repeats repetition: StepRepetition = .always,
    _ body: (TaskStep) async throws -> Void,
    ifInterrupted: ((TaskStep) async throws -> Void)? = nil
  ) async throws {
    let ask = ifInterrupted.map { ask in
      { (step: TaskStep) async throws -> Done in
        try await ask(step)
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
      ifInterrupted: ask
    )
  }
}

extension TaskContext {
  /// Always throws, for a body whose value can't be stored.
  ///
  /// Without this method, such a body would count as a step without a value, and the value would be
  /// lost.
  ///
  /// It is deprecated, and not unavailable, because the compiler does not choose an unavailable
  /// method if another one matches.
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

/// The stored value of a step that has no value of its own: `true`.
struct Done: Codable, Sendable {
  init() {}

  // Accepts any value: the step may have had a value before the code was changed.
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
  /// The ID of the task, a slash, and the name: the same at each attempt.
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
  /// The queue stores that the step starts before the step starts. If the process ends, or the step
  /// throws, before its end is stored, it is unknown whether the work was done. The next attempt
  /// calls `ifInterrupted`, or throws a ``StepInterrupted``.
  case never
}

/// The error for a step that can't be performed because of a mistake in the handler.
///
/// Another attempt would fail in the same way. So the task is abandoned if the handler does not
/// catch the error.
public struct StepError: RetryAwareError, CustomStringConvertible {
  /// What is wrong with the step.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The attempt has already used the name; each step needs its own name.
    public static let nameUsedTwice = Code("nameUsedTwice")
    /// The step was started in the body of another step, which is repeated as a whole.
    public static let nested = Code("nested")
    /// The name is empty, too long, or has a NUL (U+0000).
    public static let invalidName = Code("invalidName")
    /// The step's value can't be encoded.
    public static let notEncodable = Code("notEncodable")
    /// The step's value is too large, or the task's memory would become too large.
    ///
    /// The work was done, but its value is not stored.
    public static let tooLarge = Code("tooLarge")
    /// The attempt is over: the context was used after the handler had ended.
    public static let attemptIsOver = Code("attemptIsOver")

    /// The code's name.
    public var description: String { name }
  }

  /// What is wrong with the step.
  public let code: Code
  /// The name of the step.
  public let name: String
  /// A text for people to read: what is wrong, and what to do about it.
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

/// The error for a step that was interrupted and is not repeated.
///
/// The step started in an earlier attempt, and it is unknown whether its work was done. Ask the
/// other side, as `ifInterrupted` of ``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_`` does.
/// If the handler does not catch this error, the task is abandoned, and becomes a dead letter for a
/// person to look at.
public struct StepInterrupted: RetryAwareError, CustomStringConvertible {
  /// The step.
  public let step: TaskStep

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// A text such as `the step 'wire' was interrupted, and is not repeated; ask the other side
  /// whether it was done`.
  public var description: String {
    "the step '\(step.name)' was interrupted, and is not repeated; ask the other side whether it "
      + "was done"
  }
}

/// The error that ends a handler whose task is suspended.
///
/// ``TaskContext/sleep(_:for:)`` and ``TaskContext/completion(_:of:within:_:)`` throw it. Don't
/// catch it, or rethrow it after any cleanup. Whatever the handler then returns or throws, the task
/// is suspended, and the handler is called again on the date, or when the completion has arrived.
///
/// `withRetry` in a handler does not retry after this error, but throws it at once.
public struct TaskSuspended: RetryAwareError, CustomStringConvertible {
  /// `.stop`, so that `withRetry` in the handler throws the error, and the queue suspends the task.
  public var retryDecision: RetryDecision { .stop }
  /// A text for logs.
  public var description: String { "the task is suspended" }
}

extension StepError: LocalizedError {
  /// The message.
  public var errorDescription: String? { description }
}

extension StepInterrupted: LocalizedError {
  /// The description: what happened, and what to do.
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
  /// - Throws: `CancellationError` if the store fails, and then the attempt is not counted;
  ///   ``TaskSuspended`` if the attempt has suspended the task. If the stored checkpoint has
  ///   another type, the task is parked, like one whose payload can't be decoded.
  public func checkpoint<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self
  ) async throws -> Value? {
    try await beginUse(of: "checkpoint", storedAs: MemoryName.checkpoint, isRepeatable: true)
    return try storedBytes(under: MemoryName.checkpoint).map { try decoded($0, "checkpoint") }
  }

  /// Saves the task's progress as a checkpoint, which replaces the previous one.
  ///
  /// With ``Durability/relaxed``, the first checkpoint of an attempt is stored at once. After that,
  /// at most one is stored each second. The last one is stored when the attempt ends, unless the
  /// task has succeeded. So a crash of the process loses at most a second's progress, and a power
  /// failure loses what ``Durability/relaxed`` allows. With ``Durability/durable``, the checkpoint
  /// is stored when this returns.
  ///
  /// A checkpoint counts as progress: it resets ``TaskContext/interruptionCount``, so that a long
  /// transfer is not abandoned because its process is killed repeatedly.
  ///
  /// A checkpoint is also a good place to stop. If the attempt was cancelled, for example because
  /// the queue is shut down, this saves and then throws `CancellationError`. If the handler does
  /// not catch that error, the attempt is not counted, and the next one continues from here.
  ///
  /// - Parameters:
  ///   - value: the progress; at most 65,536 bytes as JSON.
  ///   - durability: the failures that the checkpoint survives, and when it is stored.
  /// - Throws: `CancellationError`; a ``StepError`` if the value can't be stored;
  ///   ``TaskSuspended``.
  public func save<Value: Codable & Sendable>(
    _ value: Value,
    durability: Durability = .relaxed
  ) async throws {
    let name = MemoryName.checkpoint
    try await beginUse(of: "checkpoint", storedAs: name, isRepeatable: true)
    let bytes = try encoded(value, "checkpoint")
    try checkSize(of: bytes, name: "checkpoint", storedAs: name)
    memory.with(number) { $0.save(bytes) }
    try await writeCheckpoint(durability, isDue: durability == .durable || Task.isCancelled)
    try Task.checkCancellation()
  }

  /// Stores the latest checkpoint if it is not stored yet, and `isDue` or the last one was stored
  /// long enough ago.
  func writeCheckpoint(_ durability: Durability, isDue: Bool) async throws {
    while true {
      let time = queue.time.stopwatch()
      // The stored checkpoint may not be durable, so store it again.
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
      // The checkpoint that is being stored may not be the latest one.
      guard isDue, memory.with(number, { $0.isSaving }) else { return }
      await memory.waitWhileSaving(inAttempt: number)
    }
  }
}

extension TaskContext {
  /// Suspends the task for a while, during which it uses no worker, no lease and no memory of the
  /// process.
  ///
  /// ```swift
  /// try await context.sleep("before the reminder", for: .seconds(3 * 86_400))
  /// try await mail.remind(order)
  /// ```
  /// The first call stores the date on which the sleep ends, and throws ``TaskSuspended``. On that
  /// date, any process calls the handler again: its earlier steps return their stored values, and
  /// this returns. The task is suspended even if the handler catches the error. A suspended task
  /// keeps its unique key and its position among the tasks with its order key. If the clock turns
  /// out to have been ahead, the sleep starts again from the current date.
  ///
  /// Start a sleep only after all work that must come before it has ended. Steps that run
  /// concurrently with a sleep are cancelled with the handler.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep. An attempt can use a name only once.
  ///   - duration: how long the task sleeps; a negative duration counts as zero.
  /// - Throws: ``TaskSuspended``; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails.
  public func sleep(_ name: String, for duration: Duration) async throws {
    try await sleep(name) { WaitEnd(after: duration, from: $0) }
  }

  /// Suspends the task until a date, as ``sleep(_:for:)`` does.
  ///
  /// The date of the first call counts. Later attempts don't change it.
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
    try await beginUse(of: name, storedAs: stored)
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

/// The stored form of the date on which a sleep ends or a wait for a completion times out.
///
/// In JSON, a chosen date is a number of seconds since 1970. A date that was calculated from a
/// duration is a list: that number, and the date from which it was calculated.
struct WaitEnd: Codable, Equatable, Sendable {
  private(set) var date: Date
  /// The clock's date when `date` was calculated; `nil` if `date` was chosen.
  private(set) var countedFrom: Date?

  init(at date: Date) { self.date = date }

  init(after duration: Duration, from now: Date) {
    date = now.storableDate(after: duration)
    countedFrom = now
  }

  /// Returns the end of the same wait, recalculated from `now` if it was calculated from a later
  /// date, because the clock was ahead then.
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
