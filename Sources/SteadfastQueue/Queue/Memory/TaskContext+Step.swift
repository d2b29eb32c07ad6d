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
