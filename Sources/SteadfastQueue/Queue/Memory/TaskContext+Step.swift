public import SteadfastRetry
public import SystemFoundation

extension TaskContext {
  /// Performs a step once: a later attempt gets its value without performing it again.
  ///
  /// ```swift
  /// let charge = try await context.step("charge") { step in
  ///   try await bank.charge(order.amount, idempotencyKey: step.key)
  /// }
  /// ```
  /// The value is stored durably before this returns. An attempt that comes after it, in this
  /// process or another one, returns the stored value. A step is known by its name, not by its
  /// place, so steps may be performed side by side, and the code may change between attempts. What
  /// is remembered under a name that no step has any more is ignored. See <doc:WorkInSteps>.
  ///
  /// If the process ends before the value is stored, the next attempt performs the step again: give
  /// ``TaskStep/key`` to a service that must not do the work twice, or pass
  /// ``StepRepetition/never``.
  ///
  /// Errors are not remembered: if the body throws, this throws the same error, and the next
  /// attempt performs the step again. Nothing begins in an attempt that was cancelled. A body that
  /// returns although it was cancelled is remembered.
  ///
  /// - Parameters:
  ///   - name: the step's name: 1 to 1,000 bytes of UTF-8. An attempt uses a name once.
  ///   - item: what the step is for, such as the ID of an item in a loop. It is a part of the name,
  ///     in brackets.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step. It can't perform another one.
  ///   - ifInterrupted: for a step that is not repeated: asks the other side whether it was done,
  ///     and returns its value, or performs it then. By default a ``StepInterrupted`` is thrown.
  /// - Returns: the value of the step. It takes at most 65,536 bytes as JSON.
  /// - Throws: what the body throws; a ``StepError`` for a name whose step has returned, or a value
  ///   that can't be stored; a ``StepInterrupted``; ``TaskSuspended`` if the attempt has suspended
  ///   the task; `CancellationError`, also if another queue has taken the task over or the store
  ///   fails, and then the attempt is not counted. If the stored value is not a `Value`, the task
  ///   is parked, like one whose payload can't be decoded.
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
    try await begin(step.name, stored)
    return try await using(stored) {
      if let bytes = remembered(stored) { return try decoded(bytes, step.name) }
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
    if repetition == .never, remembered(MemoryName.intent(step.name)) != nil {
      guard let ifInterrupted else { throw StepInterrupted(step: step) }
      value = try await inStep { try await ifInterrupted(step) }
    } else {
      if repetition == .never {
        let intent = MemoryName.intent(step.name)
        try check(MemoryName.begun, under: step.name, intent)
        try await remember([(intent, MemoryName.begun)])
      }
      value = try await inStep { try await body(step) }
    }
    let bytes = try encoded(value, step.name)
    try check(bytes, under: step.name, stored)
    try await remember([(stored, bytes)])
    return value
  }

  /// Performs a step without a value once: a later attempt does not perform it again.
  ///
  /// It does what the function with a value does.
  ///
  /// - Parameters:
  ///   - name: the step's name.
  ///   - item: what the step is for; a part of the name.
  ///   - repetition: whether an interrupted step is repeated.
  ///   - body: performs the step.
  ///   - ifInterrupted: for a step that is not repeated: makes sure that it was done.
  /// - Throws: the errors of the function with a value.
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
  /// Throws: without this, a body whose value can't be stored would be a step without a value, and
  /// the value would be lost.
  ///
  /// It is deprecated, and not unavailable, because the compiler chooses no unavailable function if
  /// another one fits.
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
      "the value of '\(name)' has the type \(Value.self), which is not Codable, and can't be stored; "
        + "make it Codable, or assign it to '_' in the body"
    )
  }
}

/// The value of a step without one: `true` in the store.
struct Done: Codable, Sendable {
  init() {}

  // A step may have had a value before the code was changed.
  init(from decoder: any Decoder) {}

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(true)
  }
}

/// The step of a task that is under way (``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_``).
public struct TaskStep: Sendable, Hashable {
  /// The name that the handler gave it, with what it is for, as in `pick[7]`.
  public let name: String
  /// The ID of the task, a slash, and the name: the same at each attempt.
  ///
  /// Give it to the service that must not do the work twice.
  public let key: String

  init(_ name: String, of id: TaskID) {
    self.name = name
    key = "\(id)/\(name)"
  }
}

/// Whether a step is repeated if it was interrupted.
@nonexhaustive
public enum StepRepetition: Sendable, Hashable {
  /// The step is repeated: it is done at least once.
  case always
  /// The step is not repeated: it is done at most once.
  ///
  /// That it begins is stored first. If the process ends, or the step throws, before its end is
  /// stored, nothing tells whether the work was done. The next attempt asks `ifInterrupted`, or
  /// throws a ``StepInterrupted``.
  case never
}

/// The error for a step that can't be performed: a mistake in the handler.
///
/// Another attempt would meet it again. So the task is abandoned if the handler lets it through.
public struct StepError: RetryAwareError, CustomStringConvertible {
  /// What is wrong with the step.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The attempt has used the name before; two steps need two names.
    public static let nameUsedTwice = Code("nameUsedTwice")
    /// It was called in the body of another step, which is repeated as a whole.
    public static let nested = Code("nested")
    /// The name is empty, too long, or has a NUL (U+0000).
    public static let invalidName = Code("invalidName")
    /// Its value can't be encoded.
    public static let notEncodable = Code("notEncodable")
    /// Its value is too large, or the task would remember too much.
    ///
    /// The work was done, and is not remembered.
    public static let tooLarge = Code("tooLarge")
    /// The attempt is over: the context was used after the handler had ended.
    public static let attemptIsOver = Code("attemptIsOver")

    /// The code's name.
    public var description: String { name }
  }

  /// What is wrong.
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

/// The error for a step that is not repeated, and that was interrupted.
///
/// It began in an earlier attempt, and nothing tells whether its work was done. Ask the other side,
/// as `ifInterrupted` of ``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_`` does. If the
/// handler lets this error through, the task is abandoned: a dead letter for a person to look at.
public struct StepInterrupted: RetryAwareError, CustomStringConvertible {
  /// The step.
  public let step: TaskStep

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// As in `the step 'wire' was interrupted, and is not repeated; ask whether it was done`.
  public var description: String {
    "the step '\(step.name)' was interrupted, and is not repeated; ask the other side whether it was "
      + "done"
  }
}

/// The error that leaves a handler whose task was suspended.
///
/// ``TaskContext/sleep(_:for:)`` and ``TaskContext/completion(_:of:within:_:)`` throw it. Let it
/// through, after any clean-up. Whatever the handler then returns or throws, the task is suspended,
/// and the handler is called again on the date, or when the completion has come.
///
/// `withRetry` in a handler does not retry it, but throws it at once.
public struct TaskSuspended: RetryAwareError, CustomStringConvertible {
  /// `.stop`, which is for `withRetry` in the handler: the queue suspends the task.
  public var retryDecision: RetryDecision { .stop }
  /// A text for logs.
  public var description: String { "the task is suspended" }
}

extension StepError: LocalizedError {
  /// The message.
  public var errorDescription: String? { description }
}

extension StepInterrupted: LocalizedError {
  /// What happened, and what to do.
  public var errorDescription: String? { description }
}

extension TaskSuspended: LocalizedError {
  /// What happened.
  public var errorDescription: String? { description }
}

extension TaskContext {
  /// Returns the checkpoint that was saved last; `nil` if there is none.
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
  ///   ``TaskSuspended`` if the attempt has suspended the task. If the stored checkpoint is not of
  ///   this type, the task is parked, like one whose payload can't be decoded.
  public func checkpoint<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self
  ) async throws -> Value? {
    try await begin("checkpoint", MemoryName.checkpoint, isRepeatable: true)
    return try remembered(MemoryName.checkpoint).map { try decoded($0, "checkpoint") }
  }

  /// Saves how far the task has come, in place of what was saved before.
  ///
  /// With ``Durability/relaxed``, the first checkpoint of an attempt is stored at once, and then at
  /// most one in each second; the last one is stored when the attempt ends, unless the task has
  /// succeeded. So a crash of the process loses the progress of a second, and a power cut what
  /// ``Durability/relaxed`` allows. With ``Durability/durable``, the checkpoint is stored when this
  /// returns.
  ///
  /// A checkpoint is progress: it clears ``TaskContext/interruptionCount``, so that a long transfer
  /// whose process is killed again and again is not abandoned for that.
  ///
  /// It is also a good place to stop: when the attempt was cancelled, because the queue is shut
  /// down for example, this saves and then throws `CancellationError`. If the handler lets that
  /// through, the attempt is not counted, and the next one goes on from here.
  ///
  /// - Parameters:
  ///   - value: how far the task has come; at most 65,536 bytes as JSON.
  ///   - durability: what the checkpoint survives, and when it is stored.
  /// - Throws: `CancellationError`; a ``StepError`` if the value can't be stored;
  ///   ``TaskSuspended``.
  public func save<Value: Codable & Sendable>(
    _ value: Value,
    durability: Durability = .relaxed
  ) async throws {
    let name = MemoryName.checkpoint
    try await begin("checkpoint", name, isRepeatable: true)
    let bytes = try encoded(value, "checkpoint")
    try check(bytes, under: "checkpoint", name)
    memory.with(number) { $0.save(bytes) }
    try await writeCheckpoint(durability, isDue: durability == .durable || Task.isCancelled)
    try Task.checkCancellation()
  }

  /// Stores the checkpoint that was saved last, if it is not stored and it is time.
  func writeCheckpoint(_ durability: Durability, isDue: Bool) async throws {
    while true {
      let time = queue.time.stopwatch()
      // What is stored may be relaxed, or an earlier checkpoint.
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
      // If a checkpoint is being stored, it may not be the last one.
      guard isDue, memory.with(number, { $0.isSaving }) else { return }
      await memory.waitForSaving(number)
    }
  }
}

extension TaskContext {
  /// Suspends the task for a while, which takes no worker, no lease and no memory of the process.
  ///
  /// ```swift
  /// try await context.sleep("before the reminder", for: .seconds(3 * 86_400))
  /// try await mail.remind(order)
  /// ```
  /// The date on which the sleep ends is stored when the sleep is met first. This then throws
  /// ``TaskSuspended``, and the handler is called again on that date, by any process: it goes
  /// through its steps, whose values are known, and this returns. Whatever the handler does with
  /// the error, the task is suspended. A suspended task keeps its unique key and its place in
  /// order. If the clock turns out to have been ahead, the sleep is counted again from the present
  /// date.
  ///
  /// Put a sleep after what must come before it. Steps that are under way side by side with a sleep
  /// are cancelled with the handler.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep, which an attempt uses once.
  ///   - duration: how long the task sleeps; nothing below zero.
  /// - Throws: ``TaskSuspended``; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails.
  public func sleep(_ name: String, for duration: Duration) async throws {
    try await sleep(name) { WaitEnd(after: duration, from: $0) }
  }

  /// Suspends the task until a date, as ``sleep(_:for:)`` does.
  ///
  /// The date that was given first counts, also in later attempts.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep, which an attempt uses once.
  ///   - date: when the sleep ends.
  /// - Throws: the errors of ``sleep(_:for:)``; a ``TaskQueueError`` for a date that no store can
  ///   hold.
  public func sleep(_ name: String, until date: Date) async throws {
    try TaskQueueError.check(storable: date, "the date of the sleep '\(name)'")
    try await sleep(name) { _ in WaitEnd(at: date.storable) }
  }

  private func sleep(_ name: String, until first: (_ now: Date) -> WaitEnd) async throws {
    let stored = MemoryName.sleep(name)
    try await begin(name, stored)
    let known: WaitEnd? = try remembered(stored).map { try decoded($0, name) }
    let now = queue.now
    let end = known?.counted(at: now) ?? first(now)
    if end != known {
      try Task.checkCancellation()
      let bytes = try encoded(end, name)
      try check(bytes, under: name, stored)
      try await remember([(stored, bytes)])
    }
    guard end.date > queue.now else { return }
    throw suspend(until: end)
  }
}

/// When a sleep or the wait for a completion ends, as a task remembers it.
///
/// In JSON, it is the date in seconds since 1970 or, if that was counted, a list of it and of the
/// date from which it was counted.
struct WaitEnd: Codable, Equatable, Sendable {
  private(set) var date: Date
  /// The date by the clock from which it was counted; `nil` if it was chosen.
  private(set) var countedFrom: Date?

  init(at date: Date) { self.date = date }

  init(after duration: Duration, from now: Date) {
    date = now.storable(after: duration)
    countedFrom = now
  }

  /// Returns the end of the same wait, counted from `now` if it was counted from a later date.
  ///
  /// The clock was ahead then.
  func counted(at now: Date) -> WaitEnd {
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
