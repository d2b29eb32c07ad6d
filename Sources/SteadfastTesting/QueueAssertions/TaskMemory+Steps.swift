public import SteadfastQueue

/// What a task remembers in a test, as if an earlier attempt had stored it.
extension TaskMemory {
  /// Makes a memory in which steps have ended, each with its value.
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
  ///   - steps: the values of the steps, by their names, with what they are for in brackets, as in
  ///     `pick[7]`. A step without a value has `true`.
  ///   - interrupted: the steps that are not repeated, and that were interrupted.
  ///   - checkpoint: the checkpoint that was saved last; by default none.
  /// - Throws: What encoding a value throws.
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
