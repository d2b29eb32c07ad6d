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
