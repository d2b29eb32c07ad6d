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
    try await core.opened.storage.usersValue(named: name)
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
    try await core.opened.storage.setUsersValue(value, named: name, durability)
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
    try await core.opened.storage.replaceUsersValue(named: name, expected, by: value, durability)
  }
}

/// Pauses that the store holds, for the queue in every process that uses it.
extension TaskQueue {
  /// Pauses the queue, in every process that uses its store, until ``resume(durability:)``.
  ///
  /// The pause is stored, so it outlasts the process: a queue that is made on the store later is
  /// paused too. When the call returns, no attempt begins in this queue, as with ``pause()``.
  /// Queues in other processes follow when they look at the store the next time: at a hint
  /// (``Persistence/hints``), or after a ``StoreSharing/pollInterval``. In a ``TaskQueueGroup``,
  /// the pause is that of this queue alone (``TaskQueueGroup/pause(durability:)``).
  ///
  /// A queue has two pauses: the one in memory of ``pause()``, and the one in its store. It
  /// performs tasks while neither holds. Each is ended by its own call: ``resume()`` leaves a
  /// stored pause as it is.
  ///
  /// If the calling Swift task is cancelled, the pause is stored all the same, but the waiting for
  /// attempts that are about to begin ends at once.
  ///
  /// - Parameter durability: what the pause survives once the call has returned.
  /// - Throws: The same errors as ``open()``; what the store throws. It is then unknown whether the
  ///   pause is stored. This queue goes on as before until it reads the store again, when it runs
  ///   again for instance.
  ///   If the call is cancelled while another one of these calls waits for a store that is gone, it
  ///   throws `CancellationError`, and nothing is stored.
  public nonisolated func pause(durability: Durability) async throws {
    try await core.opened.gate.pause(durability)
  }

  /// Undoes ``pause(durability:)``, whichever process has called it.
  ///
  /// Queues in other processes follow when they look at the store the next time. Names that are
  /// paused stay paused, and so does a queue that is paused in memory (``pause()``).
  ///
  /// - Parameter durability: what the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(durability: Durability) async throws {
    try await core.opened.gate.resume(durability)
  }

  /// Pauses a name, in every process that uses the store, until ``resume(name:durability:)``.
  ///
  /// The pause is stored, as with ``pause(durability:)``. When the call returns, no task of the
  /// name is claimed by this queue, as with ``pause(name:)``, and ``pausedNames`` has the name. A
  /// store has room for the names of some thousand pauses: 65,536 bytes.
  ///
  /// - Parameters:
  ///   - name: the name that the tasks were enqueued under.
  ///   - durability: what the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func pause(name: String, durability: Durability) async throws {
    try await core.opened.gate.pause(name: name, durability)
  }

  /// Undoes ``pause(name:durability:)``, whichever process has called it.
  ///
  /// Queues in other processes follow when they look at the store the next time. A name that is
  /// paused in memory (``pause(name:)``) stays paused in this queue.
  ///
  /// - Parameters:
  ///   - name: the name that was paused.
  ///   - durability: what the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(name: String, durability: Durability) async throws {
    try await core.opened.gate.resume(name: name, durability)
  }
}
