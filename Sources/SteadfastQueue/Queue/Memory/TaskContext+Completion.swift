public import SteadfastRetry
public import SystemFoundation

extension TaskContext {
  /// Suspends the task until the wait is completed with a value.
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
  /// The body passes the token on: to a transfer of the system, in the link of an e-mail, or with a
  /// request to another service. Then this throws ``TaskSuspended``. When
  /// ``TaskQueue/complete(_:with:)`` is called with the token, in this process or a later one, the
  /// handler is called again, and this returns the value. The first completion counts. A completion
  /// that arrives before the task is suspended is not lost. The task is suspended even if the
  /// handler catches the error.
  ///
  /// The token is stored before the body is called. The body is performed once, like a step: if the
  /// process ends before the body's end is stored, the next attempt calls it again, with the same
  /// token.
  ///
  /// To wait for several completions at once, open them with ``openCompletion(_:of:within:_:)``
  /// first.
  ///
  /// - Parameters:
  ///   - name: the name of the completion. An attempt can use a name only once.
  ///   - type: the type of the value.
  ///   - timeLimit: the maximum time that the task waits after it opened the completion; `nil` for
  ///     no limit.
  ///   - body: passes the token on.
  /// - Returns: the value with which the wait was completed.
  /// - Throws: ``TaskSuspended``; a ``CompletionFailed`` if the wait was completed with an error,
  ///   or has timed out; what the body throws; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails. If the value does not
  ///   have the type `Value`, the task is parked.
  public func completion<Value: Codable & Sendable>(
    _ name: String,
    of type: Value.Type = Value.self,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws -> Value {
    try await openCompletion(name, of: type, within: timeLimit, body).value
  }

  /// Suspends the task until the wait is completed.
  ///
  /// Otherwise, this does the same as the method with a value; see ``TaskQueue/complete(_:)``.
  ///
  /// - Parameters:
  ///   - name: the name of the completion.
  ///   - timeLimit: the maximum time that the task waits; `nil` for no limit.
  ///   - body: passes the token on.
  /// - Throws: the errors of the method with a value.
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
  /// other, even if it reads them concurrently: the first value that is missing suspends the task,
  /// and ends the attempt. Each completion wakes the task, even if the handler waits for another
  /// one. The handler is then called again, which does not count as a retry, and continues to wait.
  ///
  /// A handler can't continue with the first of two values that arrives. To do that, open one
  /// completion, and pass its token on twice: the first completion counts.
  ///
  /// - Parameters:
  ///   - name: the name of the completion. An attempt can use a name only once.
  ///   - type: the type of the value.
  ///   - timeLimit: the maximum time that the task waits from now on; `nil` for no limit. The wait
  ///     times out when the handler reads the value after that. So read the value with the shortest
  ///     limit first.
  ///   - body: passes the token on. It is performed once, like a step.
  /// - Returns: the completion. ``TaskCompletion/value`` waits for its value.
  /// - Throws: the errors of ``completion(_:of:within:_:)`` that do not concern the value.
  public func openCompletion<Value: Codable & Sendable>(
    _ name: String,
    of type: Value.Type = Value.self,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws -> TaskCompletion<Value> {
    let stored = MemoryName.completion(name)
    try await beginUse(of: name, storedAs: stored)
    let open: OpenCompletion
    if let bytes = storedBytes(under: stored) {
      open = try await recalculatingDeadline(of: try decoded(bytes, name), name, stored)
    } else {
      try Task.checkCancellation()
      open = try await openNew(name, stored, within: timeLimit)
    }
    guard let token = TaskToken(taskID: id, secret: open.secret) else {
      throw parkAtEnd(after: UndecodableMemory(name: name, type: "TaskToken"))
    }
    if !hasArrived(MemoryName.outcome(token)) {
      try await using(stored) { try await handOut(token, name, body) }
    }
    return TaskCompletion(
      name: name,
      token: token,
      end: open.deadline,
      context: self
    )
  }

  /// Returns whether the outcome of a completion is known.
  func hasArrived(_ outcome: String) -> Bool { storedBytes(under: outcome)?.isEmpty == false }

  /// Performs the body once, like a step.
  private func handOut(
    _ token: TaskToken,
    _ name: String,
    _ body: (TaskToken) async throws -> Void
  ) async throws {
    let stored = MemoryName.handedOut(name)
    guard storedBytes(under: stored) == nil else { return }
    try Task.checkCancellation()
    try await inStep { try await body(token) }
    try await remember([(stored, try encoded(Done(), name))])
  }

  private func openNew(
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

  /// Recalculates the deadline if the clock was ahead when the completion was opened.
  private func recalculatingDeadline(
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

/// A completion that a task has opened, and can wait for.
///
/// The task's handler may use it until the handler returns.
public struct TaskCompletion<Value: Codable & Sendable>: Sendable {
  let name: String
  /// The token that completes it.
  public let token: TaskToken
  /// The date at which the wait times out; `nil` if it has no limit.
  ///
  /// The wait times out when ``value`` is read on that date or later. A completion that arrives
  /// before ``value`` is read still counts.
  public var deadline: Date? { end?.date }
  let end: WaitEnd?
  let context: TaskContext

  /// The value with which the wait was completed.
  ///
  /// If there is no value yet, the task is suspended until any of its completions arrives or this
  /// wait times out.
  /// - Throws: ``TaskSuspended`` if there is no value, or if the attempt has already suspended the
  ///   task; a ``CompletionFailed``; `CancellationError`; the same errors as
  ///   ``TaskContext/completion(_:of:within:_:)``.
  public var value: Value {
    get async throws {
      try context.checkIsNotSuspended()
      let outcome = MemoryName.outcome(token)
      // It may have arrived since the memory was read.
      if !context.hasArrived(outcome) { try await refreshMemory(of: outcome) }
      if !context.hasArrived(outcome) {
        guard let deadline, deadline <= context.queue.now else {
          throw context.suspend(until: end, awaiting: [outcome])
        }
        try await timeOut(outcome)
      }
      let bytes = context.storedBytes(under: outcome) ?? []
      let brought: CompletionOutcome.Brought<Value> = try context.decoded(
        bytes,
        name,
        as: Value.self
      )
      switch brought.result {
      case .success(let value): return value
      case .failure(let missing): throw CompletionFailed(name: name, reason: missing.reason)
      }
    }
  }

  private func refreshMemory(of outcome: String) async throws {
    let memory = try await context.loadMemory()
    context.memory.with(context.number) { $0.refresh(outcome, from: memory) }
  }

  /// Completes the wait as timed out, unless another completion arrives first.
  private func timeOut(_ outcome: String) async throws {
    let failure = try MemoryCoding.encode(CompletionOutcome.Failure(timedOut: true))
    do {
      _ = try await context.queue.results.complete(token, failure)
    } catch let error as CancellationError {
      throw error
    } catch {
      throw context.releaseAtEnd(after: error, operation: "store a task's memory")
    }
    try await refreshMemory(of: outcome)
  }
}

/// The error for a wait that was completed with an error, or has timed out.
///
/// The outcome is stored, so each later attempt gets the same error. If the handler does not catch
/// it, the task is abandoned.
public struct CompletionFailed: RetryAwareError, CustomStringConvertible {
  /// The name of the completion.
  public let name: String
  /// The text of the error with which the wait was completed; `nil` if it has timed out.
  public let reason: String?

  /// Whether no completion arrived in time.
  public var hasTimedOut: Bool { reason == nil }
  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// A text such as `the completion 'upload' has timed out`.
  public var description: String {
    reason.map { "the completion '\(name)' has failed: \($0)" }
      ?? "the completion '\(name)' has timed out"
  }
}

extension CompletionFailed: LocalizedError {
  /// The name of the completion, and why it failed.
  public var errorDescription: String? { description }
}

/// The stored form of a wait's outcome.
enum CompletionOutcome {
  private enum Key: CodingKey { case value, error, timedOut }

  /// A completion with a value.
  struct Value<Wrapped: Encodable>: Encodable {
    let value: Wrapped
  }

  /// A completion without a value.
  struct Failure: Encodable {
    var error: String?
    var timedOut: Bool?
  }

  /// The decoded outcome of a completion.
  struct Brought<Wrapped: Decodable>: Decodable {
    let result: Result<Wrapped, Missing>

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Key.self)
      if let reason = try container.decodeIfPresent(String.self, forKey: .error) {
        result = .failure(Missing(reason: reason))
      } else if try container.decodeIfPresent(Bool.self, forKey: .timedOut) == true {
        result = .failure(Missing(reason: nil))
      } else {
        result = .success(try container.decode(Wrapped.self, forKey: .value))
      }
    }
  }

  /// The reason why there is no value; `nil` if the completion has timed out.
  struct Missing: Error {
    let reason: String?
  }
}

/// The stored form of a wait's token and deadline.
struct OpenCompletion: Codable, Sendable {
  /// The random part of the token.
  let secret: String
  /// When the wait times out; `nil` if it has no limit.
  var deadline: WaitEnd?
}
