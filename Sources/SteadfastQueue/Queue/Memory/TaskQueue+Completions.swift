public import SystemFoundation

/// What tasks remember, and the completions that they wait for.
extension TaskQueue {
  /// Completes the wait of a task with a value.
  ///
  /// The task may be suspended, wait, or be under way in any process. Its handler is called again,
  /// and ``TaskContext/completion(_:of:within:_:)`` returns the value. The first completion counts.
  /// When this returns, it is stored durably. Any queue of a group completes the waits of all.
  ///
  /// - Parameters:
  ///   - token: the token that the task has handed out.
  ///   - value: the value, at most 65,536 bytes as JSON.
  /// - Returns: whether this is the first completion, and came before the wait timed out. It is
  ///   `false` for a token that is unknown, whose task has ended or begun from the beginning, or
  ///   that was completed.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   value is too large; what its encoding throws; the same errors as ``open()``;
  ///   `CancellationError` if it is cancelled while another call for the task waits for a store
  ///   that is gone; what the store throws. In that case, it may be unknown whether the completion
  ///   is stored, and the caller can call again: `false` may then mean that the first call has
  ///   counted.
  @discardableResult
  public nonisolated func complete(
    _ token: TaskToken,
    with value: some Encodable & Sendable
  ) async throws -> Bool {
    try await core.opened.results.complete(token, with: value)
  }

  /// Completes the wait of a task that waits for no value.
  ///
  /// It does what ``complete(_:with:)`` does.
  /// - Parameter token: the token that the task has handed out.
  /// - Returns: whether this is the first completion, and came before the wait timed out.
  /// - Throws: the errors of ``complete(_:with:)``.
  @discardableResult
  public nonisolated func complete(_ token: TaskToken) async throws -> Bool {
    try await complete(token, with: Done())
  }

  /// Completes the wait of a task without a value: ``TaskContext/completion(_:of:within:_:)``
  /// throws a ``CompletionFailed``.
  ///
  /// - Parameters:
  ///   - token: the token that the task has handed out.
  ///   - error: what has failed. ``TaskQueueConfiguration/errorText`` makes the text that the task
  ///     gets, which is cut to 4,096 bytes.
  /// - Returns: whether this is the first completion, and came before the wait timed out.
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
  /// After a launch, an app compares them with the transfers that the system still has, and
  /// completes those that were lost. Tasks that remember nothing are not looked at.
  ///
  /// - Throws: the same errors as ``open()``; what the store throws.
  public nonisolated func pendingCompletions() async throws -> [PendingCompletion] {
    try await core.opened.pendingCompletions()
  }

  /// Returns what a task remembers: the values of its steps, its checkpoint, its sleeps and its
  /// completions.
  ///
  /// - Parameter id: the task.
  /// - Returns: the memory; an empty one if the task remembers nothing, has succeeded, or is not
  ///   there.
  /// - Throws: the same errors as ``open()``; what the store throws.
  public nonisolated func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.opened.store.memory(of: id)
  }
}

/// A completion that a task waits for.
public struct PendingCompletion: Sendable, Hashable {
  /// The token that completes it.
  public let token: TaskToken
  /// The name under which the task's handler is registered.
  public let taskName: String
  /// The name of the completion in the handler.
  public let name: String
  /// When the wait ends without a value; `nil` if it has no end.
  public let deadline: Date?
  /// Whether the body has returned that hands the token out.
  var isHandedOut = true

  /// Returns the completions that a task has opened, and that have not come.
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

/// The error for a transfer that the system has no longer.
struct TransferLost: Error, CustomStringConvertible {
  let description = "the system has no transfer for it any more"
}
