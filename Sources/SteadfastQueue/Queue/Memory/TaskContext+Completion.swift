public import SteadfastRetry
public import SystemFoundation

extension TaskContext {
  /// Suspends the task until ``TaskQueue/complete(_:with:)`` gives it a value.
  ///
  /// ```swift
  /// let etag: String = try await context.completion(
  ///   "upload",
  ///   within: .seconds(86_400)
  /// ) { token in
  ///   transfer.taskDescription = token.description
  ///   transfer.resume()
  /// }
  /// ```
  /// The body passes a token on: to a background transfer, in a link in an e-mail, or with a
  /// request to another service. After the body has returned, this method throws ``TaskSuspended``,
  /// and the task is suspended even if the handler catches this error. When
  /// ``TaskQueue/complete(_:with:)`` is called with the token, in this process or a later one, the
  /// handler is called again, and this method returns the value. Only the first completion with a
  /// token counts. A completion that arrives before the task is suspended is not lost.
  ///
  /// The token is stored before the body is called. Like a step, the body is performed once: if the
  /// process ends before the queue has stored that the body returned, the next attempt calls the
  /// body again, with the same token.
  ///
  /// To wait for several completions at once, use ``openCompletion(_:of:within:_:)``.
  ///
  /// - Parameters:
  ///   - name: the name of the completion. An attempt can use a name only once.
  ///   - type: the type of the value.
  ///   - timeLimit: the maximum time to wait, from the first call on; `nil` for no limit.
  ///   - body: passes the token on.
  /// - Returns: the value that was passed to ``TaskQueue/complete(_:with:)``.
  /// - Throws: ``TaskSuspended``; a ``CompletionFailed`` if the completion is an error or did not
  ///   arrive in time; what the body throws; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails. If the value does not
  ///   have the type `Value`, the task is parked: it waits until a handler is registered again.
  public func completion<Value: Codable & Sendable>(
    _ name: String,
    of type: Value.Type = Value.self,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws -> Value {
    try await openCompletion(name, of: type, within: timeLimit, body).value
  }

  /// Suspends the task until ``TaskQueue/complete(_:)`` is called with the token.
  ///
  /// This does the same as ``completion(_:of:within:_:)``, but without a value.
  ///
  /// - Parameters:
  ///   - name: the name of the completion. An attempt can use a name only once.
  ///   - timeLimit: the maximum time to wait, from the first call on; `nil` for no limit.
  ///   - body: passes the token on.
  /// - Throws: the errors of ``completion(_:of:within:_:)``.
  public func completion(
    _ name: String,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws {
    _ = try await openCompletion(name, of: Done.self, within: timeLimit, body).value
  }

  /// Opens a completion without waiting for it, so that a task can wait for several at once.
  ///
  /// ```swift
  /// let bank = try await context.openCompletion("bank", of: Int.self) { token in
  ///   try await ask(theBank, token)
  /// }
  /// let stock = try await context.openCompletion("stock", of: Int.self) {
  ///   token in
  ///   try await ask(theStock, token)
  /// }
  /// let approvals = try await (bank.value, stock.value)
  /// ```
  /// The completions may arrive in any order, but the handler waits for the values one after the
  /// other, even if it reads them concurrently: the first missing value suspends the task, and ends
  /// the attempt. Whenever any of the completions arrives, the handler is called again, which does
  /// not count as a retry. If the value that it reads is still missing, the task is suspended
  /// again.
  ///
  /// With two open completions, a handler can't continue with whichever value arrives first. To do
  /// that, open only one completion, and pass its token on twice: the first value counts.
  ///
  /// - Parameters:
  ///   - name: the name of the completion. An attempt can use a name only once.
  ///   - type: the type of the value.
  ///   - timeLimit: the maximum time to wait, from the first call on; `nil` for no limit. The wait
  ///     times out when the handler reads a missing value after this time, so read the value with
  ///     the shortest limit first.
  ///   - body: passes the token on. It is performed once, like a step.
  /// - Returns: the completion. ``TaskCompletion/value`` waits for its value.
  /// - Throws: the errors of ``completion(_:of:within:_:)``, except a ``CompletionFailed`` and a
  ///   ``TaskSuspended`` because the value is missing.
  public func openCompletion<Value: Codable & Sendable>(
    _ name: String,
    of type: Value.Type = Value.self,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws -> TaskCompletion<Value> {
    let stored = MemoryName.completion(name)
    try await takeName(name, storedAs: stored)
    let open: OpenCompletion
    if let bytes = storedBytes(under: stored) {
      open = try await updateDeadline(of: try decoded(bytes, name), name, stored)
    } else {
      try Task.checkCancellation()
      open = try await openNewCompletion(name, stored, within: timeLimit)
    }
    guard let token = TaskToken(taskID: id, secret: open.secret) else {
      throw parkAtEnd(after: UndecodableMemory(name: name, type: "TaskToken"))
    }
    if !hasOutcome(named: MemoryName.outcome(token)) {
      try await releasingNameOnError(stored) { try await callOnce(body, with: token, name) }
    }
    return TaskCompletion(
      name: name,
      token: token,
      end: open.deadline,
      context: self
    )
  }

  /// Returns whether the task's memory has a completion's outcome under this name.
  func hasOutcome(named name: String) -> Bool { storedBytes(under: name)?.isEmpty == false }

  /// Calls the body, unless it has already returned in this attempt or an earlier one.
  private func callOnce(
    _ body: (TaskToken) async throws -> Void,
    with token: TaskToken,
    _ name: String
  ) async throws {
    let stored = MemoryName.handedOut(name)
    guard storedBytes(under: stored) == nil else { return }
    try Task.checkCancellation()
    try await performStep { try await body(token) }
    try await remember([(stored, try encoded(Done(), name))])
  }

  private func openNewCompletion(
    _ name: String,
    _ stored: String,
    within timeLimit: Duration?
  ) async throws -> OpenCompletion {
    let token = queue.generators.makeToken(for: id)
    let end = timeLimit.map { WaitEnd(after: $0, from: queue.now) }
    let open = OpenCompletion(secret: token.secretText, deadline: end)
    let bytes = try encoded(open, name)
    try checkSize(of: bytes, name: name, storedAs: stored)
    try await remember([(stored, bytes), (MemoryName.outcome(token), [])])
    return open
  }

  /// If the clock was ahead when the completion was opened, recalculates and stores the deadline.
  private func updateDeadline(
    of known: OpenCompletion,
    _ name: String,
    _ stored: String
  ) async throws -> OpenCompletion {
    var open = known
    open.deadline = known.deadline?.recalculated(at: queue.now)
    if open.deadline != known.deadline {
      try Task.checkCancellation()
      try await remember([(stored, try encoded(open, name))])
    }
    return open
  }
}

/// A value that a task can wait for; ``TaskContext/openCompletion(_:of:within:_:)`` returns it.
///
/// The task's handler may use it until the handler returns.
public struct TaskCompletion<Value: Codable & Sendable>: Sendable {
  let name: String
  /// The token with which ``TaskQueue/complete(_:with:)`` provides the value.
  public let token: TaskToken
  /// The date at which the wait times out; `nil` for no limit.
  ///
  /// The wait times out when ``value`` is read at this date or later. A completion that arrives
  /// after the date, but before ``value`` is read, still counts.
  public var deadline: Date? { end?.date }
  let end: WaitEnd?
  let context: TaskContext

  /// The value that was passed to ``TaskQueue/complete(_:with:)``.
  ///
  /// If there is no value yet, the task is suspended until any of its completions arrives or the
  /// wait for this value times out.
  ///
  /// - Throws: ``TaskSuspended`` if there is no value yet, or if the attempt has already suspended
  ///   the task; a ``CompletionFailed``; `CancellationError`; the same errors as
  ///   ``TaskContext/completion(_:of:within:_:)``.
  public var value: Value {
    get async throws {
      try context.checkIsNotSuspended()
      let outcome = MemoryName.outcome(token)
      // The outcome may have arrived since the attempt read the task's memory.
      if !context.hasOutcome(named: outcome) { try await reload(outcome) }
      if !context.hasOutcome(named: outcome) {
        guard let deadline, deadline <= context.queue.now else {
          throw context.suspend(until: end, awaiting: [outcome])
        }
        try await timeOut(outcome)
      }
      let bytes = context.storedBytes(under: outcome) ?? []
      let decoded: CompletionOutcome.Decoded<Value> = try context.decoded(
        bytes,
        name,
        as: Value.self
      )
      switch decoded.result {
      case .success(let value): return value
      case .failure(let noValue): throw CompletionFailed(name: name, reason: noValue.reason)
      }
    }
  }

  /// Reads the value under a name in the task's memory from the store again.
  private func reload(_ name: String) async throws {
    let memory = try await context.loadMemory()
    context.memory.with(context.number) { $0.refresh(name, from: memory) }
  }

  /// Stores that the wait has timed out, unless a completion arrives first.
  private func timeOut(_ outcome: String) async throws {
    let failure = try MemoryCoding.encode(CompletionOutcome.Failure(timedOut: true))
    do {
      _ = try await context.queue.results.complete(token, failure)
    } catch let error as CancellationError {
      throw error
    } catch {
      throw context.releaseAtEnd(after: error, operation: "store a task's memory")
    }
    try await reload(outcome)
  }
}

/// The error for a completion that is an error, or that did not arrive in time.
///
/// This outcome is stored, so each later attempt gets the same error. If the handler does not catch
/// the error, the task is abandoned.
public struct CompletionFailed: RetryAwareError, CustomStringConvertible {
  /// The name of the completion.
  public let name: String
  /// The text of the error that was passed to ``TaskQueue/complete(_:failing:)``; `nil` if the wait
  /// has timed out.
  public let reason: String?

  /// Whether the wait has timed out: no completion arrived in time.
  public var hasTimedOut: Bool { reason == nil }
  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// A message such as `the completion 'upload' has timed out`.
  public var description: String {
    reason.map { "the completion '\(name)' has failed: \($0)" }
      ?? "the completion '\(name)' has timed out"
  }
}

extension CompletionFailed: LocalizedError {
  /// The name of the completion, and why it failed.
  public var errorDescription: String? { description }
}

/// The JSON that a task's memory contains for the outcome of a completion.
enum CompletionOutcome {
  private enum Key: CodingKey { case value, error, timedOut }

  /// The JSON for a completion with a value.
  struct Value<Wrapped: Encodable>: Encodable {
    let value: Wrapped
  }

  /// The JSON for a completion that is an error, or that did not arrive in time.
  struct Failure: Encodable {
    var error: String?
    var timedOut: Bool?
  }

  struct Decoded<Wrapped: Decodable>: Decodable {
    let result: Result<Wrapped, NoValue>

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Key.self)
      if let reason = try container.decodeIfPresent(String.self, forKey: .error) {
        result = .failure(NoValue(reason: reason))
      } else if try container.decodeIfPresent(Bool.self, forKey: .timedOut) == true {
        result = .failure(NoValue(reason: nil))
      } else {
        result = .success(try container.decode(Wrapped.self, forKey: .value))
      }
    }
  }

  struct NoValue: Error {
    /// The text of the error in place of the value; `nil` if the wait has timed out.
    let reason: String?
  }
}

/// The token and the deadline of a completion, as the task's memory contains them.
struct OpenCompletion: Codable, Sendable {
  /// The random part of the token.
  let secret: String
  /// When the wait times out; `nil` for no limit.
  var deadline: WaitEnd?
}
