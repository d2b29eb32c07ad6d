public import SystemFoundation

extension TaskQueue {
  /// Gives a task the value that it waits for in ``TaskContext/completion(_:of:within:_:)``.
  ///
  /// The task may be suspended, waiting, or being performed in any process. Its handler is called
  /// again, and ``TaskContext/completion(_:of:within:_:)`` returns the value. Only the first
  /// completion with a token counts. When this call returns, the completion is stored durably. In a
  /// ``TaskQueueGroup``, the task may belong to any queue of the group.
  ///
  /// - Parameters:
  ///   - token: the token that the task's handler has passed on.
  ///   - value: the value, at most 65,536 bytes as JSON.
  /// - Returns: whether the completion counts. It does not if it is not the first one with this
  ///   token, if the wait has timed out, if the task has ended or was restarted without its memory,
  ///   or if the token is unknown.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   value is too large; what its encoding throws; the same errors as ``open()``;
  ///   `CancellationError` if the call is cancelled while another call for the task waits for an
  ///   unavailable store; what the store throws. After an error that is not transient
  ///   (``PersistenceError``), the completion may be stored nevertheless. The caller can then
  ///   repeat the call; if that returns `false`, the first call may have counted.
  @discardableResult
  public nonisolated func complete(
    _ token: TaskToken,
    with value: some Encodable & Sendable
  ) async throws -> Bool {
    try await core.opened.results.complete(token, with: value)
  }

  /// Wakes a task that waits in ``TaskContext/completion(_:within:_:)``, which expects no value.
  ///
  /// This does the same as ``complete(_:with:)``, but without a value.
  ///
  /// - Parameter token: the token that the task's handler has passed on.
  /// - Returns: whether the completion counts, as for ``complete(_:with:)``.
  /// - Throws: the errors of ``complete(_:with:)``.
  @discardableResult
  public nonisolated func complete(_ token: TaskToken) async throws -> Bool {
    try await complete(token, with: Done())
  }

  /// Makes ``TaskContext/completion(_:of:within:_:)`` throw a ``CompletionFailed`` in the handler
  /// of the task that waits.
  ///
  /// This does the same as ``complete(_:with:)``, but with an error instead of a value.
  ///
  /// - Parameters:
  ///   - token: the token that the task's handler has passed on.
  ///   - error: the error. ``TaskQueueConfiguration/errorText`` converts it to the task's
  ///     ``CompletionFailed/reason``, which is shortened to 4,096 bytes.
  /// - Returns: whether the completion counts, as for ``complete(_:with:)``.
  /// - Throws: the errors of ``complete(_:with:)``.
  @discardableResult
  public nonisolated func complete(
    _ token: TaskToken,
    failing error: any Error
  ) async throws -> Bool {
    try await core.opened.results.complete(token, failing: error)
  }

  /// Returns the completions that tasks wait for, in the order of the tasks' IDs.
  ///
  /// After a launch, an app can compare the completions with the background transfers that the
  /// system still has, and complete those whose transfers were lost.
  ///
  /// - Throws: the same errors as ``open()``; what the store throws.
  public nonisolated func pendingCompletions() async throws -> [PendingCompletion] {
    try await core.opened.pendingCompletions()
  }

  /// Returns a task's memory: what its handler has stored for its steps, its checkpoint, its sleeps
  /// and its completions.
  ///
  /// - Parameter id: the task's ID.
  /// - Returns: the memory. It is empty if the task has stored nothing, has succeeded, or does not
  ///   exist.
  /// - Throws: the same errors as ``open()``; what the store throws.
  public nonisolated func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.opened.store.memory(of: id)
  }
}

/// A completion that a task waits for.
public struct PendingCompletion: Sendable, Hashable {
  /// The token with which ``TaskQueue/complete(_:with:)`` completes it.
  public let token: TaskToken
  /// The name under which the task's handler is registered.
  public let taskName: String
  /// The name of the completion in the handler.
  public let name: String
  /// The date at which the wait times out; `nil` for no limit.
  public let deadline: Date?
  /// Whether the body that passes the token on has returned.
  var isHandedOut = true

  /// Returns the completions that a task waits for, from its memory.
  static func all(of record: TaskRecord, _ memory: TaskMemory) -> [PendingCompletion] {
    memory.names.compactMap { stored in
      guard let name = MemoryName.name(in: stored, after: MemoryName.completionPrefix),
        let bytes = memory[stored],
        let open = try? MemoryCoding.decode(OpenCompletion.self, from: bytes),
        let token = TaskToken(taskID: record.id, secret: open.secret),
        memory[MemoryName.outcome(token)]?.isEmpty == true
      else { return nil }
      return PendingCompletion(
        token: token,
        taskName: record.name,
        name: name,
        deadline: open.deadline?.date,
        isHandedOut: memory[MemoryName.handedOut(name)] != nil
      )
    }
  }
}

/// The error for a completion whose background transfer the system no longer has.
struct TransferLost: Error, CustomStringConvertible {
  let description = "the system no longer has the transfer that should complete it"
}
