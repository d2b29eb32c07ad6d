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
  /// The body hands the token out: to a transfer of the system, in the link of an e-mail, with a
  /// request to another service. Then this throws ``TaskSuspended``. When
  /// ``TaskQueue/complete(_:with:)`` is called with the token, in this process or a later one, the
  /// handler is called again, and this returns the value. The first completion counts. One that
  /// comes before the task is suspended is not missed. Whatever the handler does with the error,
  /// the task is suspended.
  ///
  /// The token is stored before the body is called. The body is called once, as a step is: if the
  /// process ends before its end is stored, the next attempt calls it again, with the same token.
  ///
  /// To wait for several completions at once, open them with ``openCompletion(_:of:within:_:)``
  /// first.
  ///
  /// - Parameters:
  ///   - name: the name of the completion, which an attempt uses once.
  ///   - type: the type of the value.
  ///   - timeLimit: how long the task waits, from when the completion is opened; `nil` for ever.
  ///   - body: hands the token out.
  /// - Returns: the value that the wait was completed with.
  /// - Throws: ``TaskSuspended``; a ``CompletionFailed`` if the wait was completed with an error,
  ///   or has timed out; what the body throws; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails. If the value is not a
  ///   `Value`, the task is parked.
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
  /// It does what the function with a value does; see ``TaskQueue/complete(_:)``.
  ///
  /// - Parameters:
  ///   - name: the name of the completion.
  ///   - timeLimit: how long the task waits; `nil` for ever.
  ///   - body: hands the token out.
  /// - Throws: the errors of the function with a value.
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
  /// They may come in any order, but the handler waits for one value after the other, even if it
  /// reads them side by side: the first one that is not there suspends the task, and the attempt
  /// goes no further. A completion wakes the task even if its value is not read yet. The handler is
  /// called again then, which counts no retry, and waits on.
  ///
  /// A handler can't go on with whichever value comes first of two. For that, open one completion,
  /// and hand its token out twice: the first completion counts.
  ///
  /// - Parameters:
  ///   - name: the name of the completion, which an attempt uses once.
  ///   - type: the type of the value.
  ///   - timeLimit: how long the task waits, from now on; `nil` for ever. The wait times out when
  ///     the handler reads the value after that. So read the one with the shortest limit first.
  ///   - body: hands the token out; it is called once, as a step is.
  /// - Returns: the completion. ``TaskCompletion/value`` waits for it.
  /// - Throws: the errors of ``completion(_:of:within:_:)`` that do not concern the value.
  public func openCompletion<Value: Codable & Sendable>(
    _ name: String,
    of type: Value.Type = Value.self,
    within timeLimit: Duration? = nil,
    _ body: (TaskToken) async throws -> Void
  ) async throws -> TaskCompletion<Value> {
    let stored = MemoryName.completion(name)
    try await begin(name, stored)
    let open: OpenCompletion
    if let bytes = remembered(stored) {
      open = try await counted(try decoded(bytes, name), name, stored)
    } else {
      try Task.checkCancellation()
      open = try await openNew(name, stored, within: timeLimit)
    }
    guard let token = TaskToken(taskID: id, secret: open.secret) else {
      throw park(UndecodableMemory(name: name, type: "TaskToken"))
    }
    if !hasCome(MemoryName.outcome(token)) {
      try await using(stored) { try await handOut(token, name, body) }
    }
    return TaskCompletion(
      name: name,
      token: token,
      end: open.deadline,
      context: self
    )
  }

  /// Whether the outcome of a completion is known.
  func hasCome(_ outcome: String) -> Bool { remembered(outcome)?.isEmpty == false }

  /// Calls the body once, as a step does.
  private func handOut(
    _ token: TaskToken,
    _ name: String,
    _ body: (TaskToken) async throws -> Void
  ) async throws {
    let stored = MemoryName.handedOut(name)
    guard remembered(stored) == nil else { return }
    try Task.checkCancellation()
    try await inStep { try await body(token) }
    try await remember([(stored, try encoded(Done(), name))])
  }

  private func openNew(
    _ name: String,
    _ stored: String,
    within timeLimit: Duration?
  ) async throws -> OpenCompletion {
    let token = queue.generators.makeToken(of: id)
    let end = timeLimit.map { WaitEnd(after: $0, from: queue.now) }
    let open = OpenCompletion(secret: token.secretText, deadline: end)
    let bytes = try encoded(open, name)
    try check(bytes, under: name, stored)
    try await remember([(stored, bytes), (MemoryName.outcome(token), [])])
    return open
  }

  /// Counts a deadline again if the clock was ahead when the completion was opened.
  private func counted(
    _ known: OpenCompletion,
    _ name: String,
    _ stored: String
  ) async throws -> OpenCompletion {
    var open = known
    open.deadline = known.deadline?.counted(at: queue.now)
    if open.deadline != known.deadline {
      try Task.checkCancellation()
      try await remember([(stored, try encoded(open, name))])
    }
    return open
  }
}

/// A completion that a task has opened, and can wait for.
///
/// Its handler may use it until it returns.
public struct TaskCompletion<Value: Codable & Sendable>: Sendable {
  let name: String
  /// The token that completes it.
  public let token: TaskToken
  /// When the wait ends without a value; `nil` if it has no end.
  ///
  /// It ends when ``value`` is read on that date or later. A completion that comes before that
  /// counts.
  public var deadline: Date? { end?.date }
  let end: WaitEnd?
  let context: TaskContext

  /// The value that the wait was completed with.
  ///
  /// If there is none yet, the task is suspended, until any of its completions comes or the time of
  /// this one is up.
  /// - Throws: ``TaskSuspended``, also if the attempt has suspended the task before, whether there
  ///   is a value or not; a ``CompletionFailed``; `CancellationError`; the same errors as
  ///   ``TaskContext/completion(_:of:within:_:)``.
  public var value: Value {
    get async throws {
      try context.checkIsNotSuspended()
      let outcome = MemoryName.outcome(token)
      // It may have come since the memory was read.
      if !context.hasCome(outcome) { try await reread(outcome) }
      if !context.hasCome(outcome) {
        guard let deadline, deadline <= context.queue.now else {
          throw context.suspend(until: end, awaiting: [outcome])
        }
        try await timeOut(outcome)
      }
      let bytes = context.remembered(outcome) ?? []
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

  private func reread(_ outcome: String) async throws {
    let memory = try await context.load()
    context.memory.with(context.number) { $0.reread(outcome, in: memory) }
  }

  /// Completes the wait without a value, unless another completion comes first.
  private func timeOut(_ outcome: String) async throws {
    let failure = try MemoryCoding.encode(CompletionOutcome.Failure(timedOut: true))
    do {
      _ = try await context.queue.results.complete(token, failure)
    } catch let error as CancellationError {
      throw error
    } catch {
      throw context.release(error, "keep what a task remembers")
    }
    try await reread(outcome)
  }
}

/// The error for a completion that brings no value.
///
/// It is remembered, so each later attempt meets it. If the handler lets it through, the task is
/// abandoned.
public struct CompletionFailed: RetryAwareError, CustomStringConvertible {
  /// The name of the completion.
  public let name: String
  /// The text of the error that it was completed with; `nil` if it has timed out.
  public let reason: String?

  /// Whether no completion came in time.
  public var hasTimedOut: Bool { reason == nil }
  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// As in `the completion 'upload' has timed out`.
  public var description: String {
    reason.map { "the completion '\(name)' has failed: \($0)" }
      ?? "the completion '\(name)' has timed out"
  }
}

extension CompletionFailed: LocalizedError {
  /// What has failed, and why.
  public var errorDescription: String? { description }
}

/// How a wait was completed, as it is stored.
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

  /// What a completion brings.
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

  /// Why there is no value; the reason is `nil` if the completion has timed out.
  struct Missing: Error {
    let reason: String?
  }
}

/// The token and the deadline of a wait, as they are stored.
struct OpenCompletion: Codable, Sendable {
  /// The random part of the token.
  let secret: String
  /// When the wait ends; `nil` if it has no end.
  var deadline: WaitEnd?
}
