/// Small values that an application keeps in a queue's store.
extension TaskQueue {
  /// Returns the value with a name.
  ///
  /// ```swift
  /// let bytes = try await queue.value(named: "cursor")
  /// let page = bytes.map { String(decoding: $0, as: UTF8.self) }
  /// ```
  /// - Parameter name: the name; see ``setValue(_:named:durability:)``.
  /// - Returns: The value's bytes; `nil` if there is no value with this name.
  /// - Throws: A ``TaskQueueError`` if the name is reserved for the package; the same errors as
  ///   ``open()``; what the store throws.
  public nonisolated func value(named name: String) async throws -> [UInt8]? {
    try await core.opened.storage.applicationValue(named: name)
  }

  /// Sets the value with a name, and replaces any previous value.
  ///
  /// Use values for state that several tasks share and that must outlast the process, such as the
  /// progress of a synchronisation. All queues on a store share its values. A value stays until it
  /// is removed, or the store is destroyed. Values are not encrypted, even if the store encrypts
  /// payloads (``Persistence/sealingPayloads(with:acceptsPlain:)``).
  ///
  /// - Parameters:
  ///   - value: the new bytes, at most 65,536; `nil` removes the value.
  ///   - name: a name of 1 to 1,024 bytes of UTF-8, without a NUL character. Two names are equal if
  ///     their bytes are equal. Names that start with `steadfast.` are reserved for the package.
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

  /// Sets the value with a name, if the previous value is the expected one.
  ///
  /// The call compares and sets the value in one step. No other caller, in any process, can change
  /// the value in between. So if several callers try to replace the same value at the same time,
  /// only one of them succeeds:
  ///
  /// ```swift
  /// // The first process leads, until it removes the value.
  /// let isLeader = try await queue.setValue(me, named: "leader", replacing: nil)
  /// ```
  /// - Parameters:
  ///   - value: the bytes, as for ``setValue(_:named:durability:)``.
  ///   - name: the name, as for ``setValue(_:named:durability:)``.
  ///   - expected: the bytes that the value must have before the call; `nil` if there must be no
  ///     value.
  ///   - durability: the failures that the value survives once the call has returned.
  /// - Returns: Whether the value was set. If not, the previous value was another one, and nothing
  ///   has changed.
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
  /// The pause is stored, so it outlasts the process: a queue that is later made on the store is
  /// paused, too. Once the call has returned, no attempt begins in this queue, as with ``pause()``.
  /// Queues in other processes pause when they next read the store: when the store signals a change
  /// (``Persistence/hints``), or after ``StoreSharing/pollInterval``. In a ``TaskQueueGroup``, only
  /// this queue is paused. To pause all queues, call ``TaskQueueGroup/pause(durability:)``.
  ///
  /// A queue can be paused in its store and, with ``pause()``, in memory. It performs tasks only if
  /// it is paused in neither of these ways. ``resume()`` does not end a stored pause.
  ///
  /// If the calling Swift task is cancelled, the pause is stored nevertheless, but the call does
  /// not wait for attempts that are about to start.
  ///
  /// - Parameter durability: the failures that the pause survives once the call has returned.
  /// - Throws: The same errors as ``open()``. What the store throws: then it is unknown whether the
  ///   change is stored, and this queue does not apply it until it reads the store again, for
  ///   example when it next runs. `CancellationError` if the call is cancelled while it has to wait
  ///   for another call that waits for an unavailable store: then nothing is stored.
  public nonisolated func pause(durability: Durability) async throws {
    try await core.opened.gate.pause(durability)
  }

  /// Undoes ``pause(durability:)``, even if another process has called it.
  ///
  /// Queues in other processes resume when they next read the store. This does not resume names
  /// that are paused, or a queue that is paused in memory (``pause()``).
  ///
  /// - Parameter durability: the failures that the end of the pause survives once the call has
  ///   returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(durability: Durability) async throws {
    try await core.opened.gate.resume(durability)
  }

  /// Returns what is paused in the store, and since when, whichever process has paused it.
  ///
  /// The call reads the store, and this queue applies what it has read: afterwards, ``isPaused``
  /// and ``pausedNames`` include it.
  ///
  /// - Returns: The pause. It does not include pauses in memory, such as ``pause()``.
  /// - Throws: The same errors as ``open()``; what the store throws; a ``TaskQueueError`` with the
  ///   code ``TaskQueueError/Code/storeFailed`` if the stored pause can't be decoded.
  ///   `CancellationError` if the call is cancelled while it has to wait for another call that
  ///   waits for an unavailable store.
  public nonisolated func storedPause() async throws -> StoredPause {
    try await core.opened.gate.storedPause()
  }

  /// Pauses the tasks with a name, in every process that uses the store, until
  /// ``resume(name:durability:)``.
  ///
  /// The pause is stored, as with ``pause(durability:)``. Once the call has returned, this queue
  /// claims no tasks with the name, as with ``pause(name:)``, and ``pausedNames`` contains the
  /// name. All paused names together, each with a date, must fit in 65,536 bytes, which is enough
  /// for several hundred names.
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
  /// Queues in other processes resume the name when they next read the store. If the name is also
  /// paused in memory (``pause(name:)``), it stays paused in this queue.
  ///
  /// - Parameters:
  ///   - name: the name that was paused.
  ///   - durability: the failures that the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(name: String, durability: Durability) async throws {
    try await core.opened.gate.resume(name: name, durability)
  }
}
