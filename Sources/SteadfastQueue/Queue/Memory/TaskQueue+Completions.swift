public import SystemFoundation

/// The memory of tasks, and the completions that they wait for.
extension TaskQueue {
  /// Completes the wait of a task with a value.
  ///
  /// The task may be suspended, waiting, or being performed in any process. Its handler is called
  /// again, and ``TaskContext/completion(_:of:within:_:)`` returns the value. The first completion
  /// counts. When this returns, the completion is stored durably. Any queue of a group can complete
  /// the waits of all its queues.
  ///
  /// - Parameters:
  ///   - token: the token that the task has passed on.
  ///   - value: the value, at most 65,536 bytes as JSON.
  /// - Returns: whether this is the first completion, and arrived before the wait timed out. It is
  ///   `false` for a token that is unknown or already completed, or whose task has ended or started
  ///   from the beginning.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   value is too large; what its encoding throws; the same errors as ``open()``;
  ///   `CancellationError` if the call is cancelled while another call for the task waits for an
  ///   unavailable store; what the store throws. If the store throws, it may be unknown whether the
  ///   completion is stored. The caller can then call again; `false` may mean that the first call
  ///   has counted.
  @discardableResult
  public nonisolated func complete(
    _ token: TaskToken,
    with value: some Encodable & Sendable
  ) async throws -> Bool {
    try await core.opened.results.complete(token, with: value)
  }

  /// Completes the wait of a task that does not expect a value.
  ///
  /// Otherwise, this does the same as ``complete(_:with:)``.
  /// - Parameter token: the token that the task has passed on.
  /// - Returns: whether this is the first completion, and arrived before the wait timed out.
  /// - Throws: the errors of ``complete(_:with:)``.
  @discardableResult
  public nonisolated func complete(_ token: TaskToken) async throws -> Bool {
    try await complete(token, with: Done())
  }

  /// Completes the wait of a task with an error, so that
  /// ``TaskContext/completion(_:of:within:_:)`` throws a ``CompletionFailed``.
  ///
  /// - Parameters:
  ///   - token: the token that the task has passed on.
  ///   - error: the error. ``TaskQueueConfiguration/errorText`` converts it to the text that the
  ///     task gets, which is shortened to 4,096 bytes.
  /// - Returns: whether this is the first completion, and arrived before the wait timed out.
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
  /// After a launch, an app can compare them with the transfers that the system still has, and
  /// complete those whose transfers were lost. Tasks with an empty memory are skipped.
  ///
  /// - Throws: the same errors as ``open()``; what the store throws.
  public nonisolated func pendingCompletions() async throws -> [PendingCompletion] {
    try await core.opened.pendingCompletions()
  }

  /// Returns a task's memory: the values of its steps, its checkpoint, its sleeps and its
  /// completions.
  ///
  /// - Parameter id: the task.
  /// - Returns: the memory. It is empty if the task has stored nothing, has succeeded, or does not
  ///   exist.
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
  /// The date at which the wait times out; `nil` if it has no limit.
  public let deadline: Date?
  /// Whether the body that passes the token on has returned.
  var isHandedOut = true

  /// Returns the completions that a task has opened and that have not arrived.
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

/// The error for a transfer that the system no longer has.
struct TransferLost: Error, CustomStringConvertible {
  let description = "the system no longer has a transfer for it"
}
