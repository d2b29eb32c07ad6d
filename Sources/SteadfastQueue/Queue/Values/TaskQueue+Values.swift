/// Small values that an application keeps in a queue's store.
extension TaskQueue {
  /// Returns the bytes that the store has under a name.
  ///
  /// ```swift
  /// let bytes = try await queue.value(named: "cursor")
  /// let page = bytes.map { String(decoding: $0, as: UTF8.self) }
  /// ```
  /// - Parameter name: the name; see ``setValue(_:named:durability:)``.
  /// - Returns: The bytes; `nil` if there are none.
  /// - Throws: A ``TaskQueueError`` if the name is reserved for the package; the same errors as
  ///   ``open()``; what the store throws.
  public nonisolated func value(named name: String) async throws -> [UInt8]? {
    try await core.opened.storage.applicationValue(named: name)
  }

  /// Sets the bytes under a name in the store, and replaces any previous bytes.
  ///
  /// Use values for state that a few tasks share and that must outlast the process, such as the
  /// progress of a synchronisation. All queues on the store have the same values. They stay until
  /// they are removed, or the queue is destroyed. They are not sealed, even if the store seals
  /// payloads (``Persistence/sealingPayloads(with:acceptsPlain:)``).
  ///
  /// - Parameters:
  ///   - value: the bytes, at most 65,536; `nil` removes the value.
  ///   - name: a name of 1 to 1,024 bytes of UTF-8, without a NUL. Two names are equal if their
  ///     bytes are equal. Names that start with `steadfast.` are reserved for the package.
  ///   - durability: the failures that the value survives once the call has returned.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   name or the value is not allowed; the same errors as ``open()``; what the store throws. If
  ///   the store throws, it may be unknown whether the value is stored.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    durability: Durability = .durable
  ) async throws {
    try await core.opened.storage.setApplicationValue(value, named: name, durability)
  }

  /// Sets the bytes under a name in the store, if the previous bytes are the expected ones.
  ///
  /// The call compares and sets the value in one step. No other caller, in any process, can change
  /// the value in between. So if several callers replace the same bytes, only one of them gets
  /// `true`:
  ///
  /// ```swift
  /// // The first one leads, until it removes the value.
  /// let isLeader = try await queue.setValue(me, named: "leader", replacing: nil)
  /// ```
  /// - Parameters:
  ///   - value: the bytes, as for ``setValue(_:named:durability:)``.
  ///   - name: the name, as for ``setValue(_:named:durability:)``.
  ///   - expected: the bytes that the store must have under the name; `nil` for none.
  ///   - durability: the failures that the value survives once the call has returned.
  /// - Returns: Whether the value was set. If not, the store has other bytes under the name, and
  ///   nothing has changed.
  /// - Throws: The same errors as ``setValue(_:named:durability:)``.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    replacing expected: [UInt8]?,
    durability: Durability = .durable
  ) async throws -> Bool {
    try await core.opened.storage.replaceApplicationValue(
      named: name,
      expected,
      by: value,
      durability
    )
  }
}

/// Stored pauses, which apply to the queue in every process that uses the store.
extension TaskQueue {
  /// Pauses the queue, in every process that uses its store, until ``resume(durability:)``.
  ///
  /// The pause is stored, so it outlasts the process: a queue that is created on the store later is
  /// paused too. When the call has returned, no attempt starts in this queue, as with ``pause()``.
  /// Queues in other processes pause when they next read the store: at a hint
  /// (``Persistence/hints``), or after a ``StoreSharing/pollInterval``. In a ``TaskQueueGroup``,
  /// the pause applies only to this queue (``TaskQueueGroup/pause(durability:)``).
  ///
  /// A queue has two pauses: the one in memory (``pause()``), and the one in its store. It performs
  /// tasks only if neither is in effect. Each pause has its own call that ends it: ``resume()``
  /// does not end a stored pause.
  ///
  /// If the calling Swift task is cancelled, the pause is stored nevertheless, but the call does
  /// not wait for attempts that are about to start.
  ///
  /// - Parameter durability: the failures that the pause survives once the call has returned.
  /// - Throws: The same errors as ``open()``; what the store throws. It is then unknown whether the
  ///   pause is stored. This queue keeps its current state until it reads the store again, for
  ///   example when it runs again.
  ///   If the call is cancelled while another such call waits for an unavailable store, it throws
  ///   `CancellationError`, and nothing is stored.
  public nonisolated func pause(durability: Durability) async throws {
    try await core.opened.gate.pause(durability)
  }

  /// Undoes ``pause(durability:)``, even if another process has called it.
  ///
  /// Queues in other processes resume when they next read the store. Paused names stay paused, and
  /// so does a queue that is paused in memory (``pause()``).
  ///
  /// - Parameter durability: the failures that the end of the pause survives once the call has
  ///   returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(durability: Durability) async throws {
    try await core.opened.gate.resume(durability)
  }

  /// Pauses a name, in every process that uses the store, until ``resume(name:durability:)``.
  ///
  /// The pause is stored, as with ``pause(durability:)``. When the call has returned, this queue
  /// claims no tasks of the name, as with ``pause(name:)``, and ``pausedNames`` contains the name.
  /// The paused names of a store must fit in 65,536 bytes, which is enough for about a thousand.
  ///
  /// - Parameters:
  ///   - name: the name under which the tasks were enqueued.
  ///   - durability: the failures that the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func pause(name: String, durability: Durability) async throws {
    try await core.opened.gate.pause(name: name, durability)
  }

  /// Undoes ``pause(name:durability:)``, even if another process has called it.
  ///
  /// Queues in other processes resume the name when they next read the store. A name that is paused
  /// in memory (``pause(name:)``) stays paused in this queue.
  ///
  /// - Parameters:
  ///   - name: the name that was paused.
  ///   - durability: the failures that the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(name: String, durability: Durability) async throws {
    try await core.opened.gate.resume(name: name, durability)
  }
}
