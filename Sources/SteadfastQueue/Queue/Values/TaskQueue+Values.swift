/// Small values that an application holds in a queue's store.
extension TaskQueue {
  /// Returns the bytes that the store holds under a name.
  ///
  /// ```swift
  /// let bytes = try await queue.value(named: "cursor")
  /// let page = bytes.map { String(decoding: $0, as: UTF8.self) }
  /// ```
  /// - Parameter name: the name; see ``setValue(_:named:durability:)``.
  /// - Returns: The bytes; `nil` if there are none.
  /// - Throws: A ``TaskQueueError`` if the name is one of the package's own; the same errors as
  ///   ``open()``; what the store throws.
  public nonisolated func value(named name: String) async throws -> [UInt8]? {
    try Self.checkIsUsers(name)
    try await open()
    return try await store.value(named: name)
  }

  /// Sets the bytes that the store holds under a name, whatever they were.
  ///
  /// Values are for what a few tasks share and what must outlast the process, such as how far a
  /// synchronisation has come. All queues on the store have the same values. They stay until they
  /// are removed, or the queue is destroyed. They are stored as they are, also if the store seals
  /// payloads (``Persistence/sealingPayloads(with:acceptsPlain:)``).
  ///
  /// - Parameters:
  ///   - value: the bytes, at most 65,536; `nil` removes the value.
  ///   - name: a name of 1 to 1,024 bytes of UTF-8, without a NUL. Two names are the same if their
  ///     bytes are. Names that begin with `steadfast.` are the package's own.
  ///   - durability: what the value survives once the call has returned.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   name or the value is not allowed; the same errors as ``open()``; what the store throws. In
  ///   that case, it may be unknown whether the value is stored.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    durability: Durability = .durable
  ) async throws {
    try Self.checkIsUsers(name)
    try await open()
    try await setValue(named: name, durability) { _ in value }
  }

  /// Sets the bytes that the store holds under a name, if they are the ones that the caller
  /// expects.
  ///
  /// No other caller, in any process, comes between the comparison and the setting. So of several
  /// callers that replace the same bytes, one gets `true`:
  ///
  /// ```swift
  /// // The first one leads, until it removes the value.
  /// let isLeader = try await queue.setValue(me, named: "leader", replacing: nil)
  /// ```
  /// - Parameters:
  ///   - value: the bytes, as for ``setValue(_:named:durability:)``.
  ///   - name: the name, likewise.
  ///   - expected: the bytes that must be there; `nil` for none.
  ///   - durability: what the value survives once the call has returned.
  /// - Returns: Whether the value was set. If not, other bytes are there, and nothing has changed.
  /// - Throws: The same errors as ``setValue(_:named:durability:)``.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    replacing expected: [UInt8]?,
    durability: Durability = .durable
  ) async throws -> Bool {
    try Self.checkIsUsers(name)
    try await open()
    return try await replaceValue(named: name, expected, by: value, durability)
  }

  // MARK: Comparing

  /// Sets a value to what the function makes of the present one, however often that changes.
  nonisolated func setValue(
    named name: String,
    _ durability: Durability,
    _ next: ([UInt8]?) throws -> [UInt8]?
  ) async throws {
    var retries = 0
    for _ in 0..<Self.mostRefusals {
      let old = try await store.value(named: name)
      let new = try next(old)
      do {
        if try await replaceValue(named: name, old, by: new, durability) { return }
      } catch {
        // It may have been stored. What the next look finds is the present value in any case.
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.comparesWrongly(store, "the value '\(name)'")
  }

  /// Sets a value if it is the expected one.
  ///
  /// The change is a batch of its own: a comparison that fails leaves no change of its batch.
  private nonisolated func replaceValue(
    named name: String,
    _ expected: [UInt8]?,
    by value: [UInt8]?,
    _ durability: Durability
  ) async throws -> Bool {
    let change = TaskChange.setValue(named: name, from: expected, to: value)
    let results = try await persist([change], durability)
    switch results[0] {
    case .done: return true
    case .valueDiffers: return false
    case .doneWithConsequences, .replaced, .superseded, .unmetDependency, .duplicate,
      .identityTaken, .stale, .batchRefused:
      throw UnusableAnswer(results: results, to: 1)
    }
  }

  /// Refuses a name that the package uses itself.
  private static func checkIsUsers(_ name: String) throws(TaskQueueError) {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the name of the value '\(name)' begins with 'steadfast.', as the package's own do; give it "
        + "another one"
    )
  }
}
