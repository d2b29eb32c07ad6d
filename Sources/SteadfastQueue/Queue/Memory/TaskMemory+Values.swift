extension TaskMemory {
  /// The value of a step that has ended; `nil` if it has not.
  ///
  /// - Parameters:
  ///   - name: the name of the step, with what it is for in brackets, as in `pick[7]`.
  ///   - type: the type of the value.
  /// - Returns: The value; `nil` if the step has not ended.
  /// - Throws: What decoding the value throws.
  public func value<Value: Decodable>(
    ofStep name: String,
    as type: Value.Type = Value.self
  ) throws -> Value? {
    try self[MemoryName.step(name)].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// The names of the steps that have ended, with what they are for in brackets.
  public var steps: [String] {
    names.compactMap { MemoryName.name(in: $0, after: MemoryName.stepPrefix) }
  }

  /// The checkpoint that was saved last; `nil` if there is none.
  ///
  /// - Throws: What decoding it throws.
  public func checkpoint<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value? {
    try self[MemoryName.checkpoint].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// Sets the value of a step, as if it had ended with it; for tests.
  ///
  /// - Throws: What encoding the value throws.
  package mutating func setValue(_ value: some Encodable, ofStep name: String) throws {
    self[MemoryName.step(name)] = try MemoryCoding.encode(value)
  }

  /// Has the memory say that a step that is not repeated was interrupted; for tests.
  package mutating func setInterrupted(step name: String) {
    self[MemoryName.intent(name)] = MemoryName.begun
  }

  /// Sets the checkpoint; for tests.
  ///
  /// - Throws: What encoding the value throws.
  package mutating func setCheckpoint(_ value: some Encodable) throws {
    self[MemoryName.checkpoint] = try MemoryCoding.encode(value)
  }
}
