import Synchronization

/// Code that runs around each call that adds tasks to a queue, and around each attempt.
///
/// With middleware, code that all tasks need is in one place: logs, metrics, traces, or the tenant
/// for whom a task is performed. It applies to closures, to ``PerformableTask`` and to
/// ``TaskHandler`` alike.
///
/// Of several, the first one is the outermost (``TaskQueueConfiguration/middleware``). Both methods
/// have a default that only calls `next`. <doc:AroundAllTasks> has examples.
public protocol TaskMiddleware: Sendable {
  /// Runs around a call that adds tasks.
  ///
  /// A call for a single task has one draft, and a call for several tasks has all of them. This is
  /// not called for the occurrences of a schedule, which have the metadata that the schedule gives
  /// them, nor for ``TaskQueue/insertStatement(for:uniqueKey:options:)``.
  ///
  /// If an ID of a new task is already in use, which is rare, this is called again, with other IDs.
  ///
  /// - Parameters:
  ///   - tasks: the new tasks. You can change their tags and metadata.
  ///   - next: adds the tasks. Call it with the same tasks in the same order, and not again after
  ///     it has added them. If you don't call it, throw an error, because no task is added.
  /// - Throws: an error that the caller gets. If `next` has already returned, the tasks stay in the
  ///   queue.
  nonisolated(nonsending) func enqueue(_ tasks: [TaskDraft], next: EnqueueChain) async throws

  /// Runs around an attempt.
  ///
  /// The handler sees the task-local values that this method sets when it calls `next`. The task's
  /// time limit is within `next`: if the attempt takes too long, `next` throws a `TimeoutError`.
  ///
  /// - If this returns, the task has succeeded, even if `next` has thrown an error, or was not
  ///   called.
  /// - If this throws, the attempt ends with that error, which can be a ``TaskSnoozed``.
  /// - If this calls `next` again, the handler is called again in the same attempt.
  ///
  /// In these cases `next` throws, and what you do then changes nothing:
  /// - The attempt was cancelled: the task is released.
  /// - The payload can't be decoded: the task is parked.
  /// - The handler has suspended its task (``TaskSuspended``), or its memory can't be stored.
  ///
  /// This is not called if there is no attempt, for example because the task has expired.
  ///
  /// - Parameters:
  ///   - context: what the handler gets.
  ///   - next: calls the handler.
  /// - Throws: an error with which the attempt ends.
  nonisolated(nonsending) func perform(_ context: TaskContext, next: AttemptChain) async throws
}

extension TaskMiddleware {
  /// Adds the tasks as they are.
  nonisolated(nonsending) public func enqueue(
    _ tasks: [TaskDraft],
    next: EnqueueChain
  ) async throws {
    try await next(tasks)
  }

  /// Calls the handler.
  nonisolated(nonsending) public func perform(
    _ context: TaskContext,
    next: AttemptChain
  ) async throws {
    try await next()
  }
}

/// The rest of the middleware around an attempt, and the handler, for ``TaskMiddleware``.
///
/// It is a value and not a closure: the types of asynchronous closures differ between language
/// modes, and a method with another type would silently not be called.
public struct AttemptChain: Sendable {
  private let rest: ArraySlice<any TaskMiddleware>
  private let context: TaskContext
  private let attempt: @Sendable () async throws -> Void

  /// Calls the next middleware or, after the last one, the handler.
  ///
  /// - Throws: what they throw.
  nonisolated(nonsending) public func callAsFunction() async throws {
    guard let first = rest.first else { return try await attempt() }
    let next = AttemptChain(rest: rest.dropFirst(), context: context, attempt: attempt)
    try await first.perform(context, next: next)
  }

  /// Performs an attempt through middleware.
  static func perform(
    _ context: TaskContext,
    through middleware: [any TaskMiddleware],
    _ attempt: @escaping @Sendable () async -> AttemptEnd
  ) async -> AttemptEnd {
    let last = LastEnd()
    let chain = AttemptChain(rest: middleware[...], context: context) {
      // The handler uses the names of its steps again.
      if last.value.withLock({ $0 != nil }) {
        context.memory.with(context.number) { $0.reuseNames() }
      }
      let end = await attempt()
      last.value.withLock { $0 = end }
      switch end {
      case .returned: break
      case .threw(let error), .undecodable(let error): throw error
      case .cancelled: throw CancellationError()
      }
    }
    var thrown: (any Error)?
    do { try await chain() } catch { thrown = error }
    switch (last.value.withLock(\.self), thrown) {
    // Middleware may have cancelled only the handler, for example with a time limit.
    case (.cancelled?, _) where Task.isCancelled: return .cancelled
    case (.undecodable(let error)?, _): return .undecodable(error)
    case (_, let error?): return Task.isCancelled ? .cancelled : .threw(error)
    case (.returned(let value)?, nil): return .returned(value)
    case (_, nil): return .returned(())
    }
  }

  /// The end of the last call of the handler.
  private final class LastEnd: Sendable {
    let value = Mutex<AttemptEnd?>(nil)
  }
}

/// The rest of the middleware around a call that adds tasks, and the call, for ``TaskMiddleware``.
public struct EnqueueChain: Sendable {
  private let rest: ArraySlice<any TaskMiddleware>
  private let call: Call

  /// Calls the next middleware or, after the last one, adds the tasks.
  ///
  /// - Parameter tasks: the tasks that the middleware got, with other tags or metadata.
  /// - Returns: the tasks that were added, or existing tasks with the same keys.
  /// - Throws: what the middleware or the call throws.
  @discardableResult
  nonisolated(nonsending) public func callAsFunction(
    _ tasks: [TaskDraft]
  ) async throws -> [EnqueuedTask] {
    if let first = rest.first {
      try await first.enqueue(tasks, next: EnqueueChain(rest: rest.dropFirst(), call: call))
    } else {
      try await call.add(tasks)
    }
    guard let tasks = call.end.withLock(\.tasks) else {
      throw TaskQueueError(
        .invalidArgument,
        "middleware has returned without adding the tasks; call next, or throw an error"
      )
    }
    return tasks
  }

  /// Adds tasks through middleware, and returns what `add` has returned.
  ///
  /// `add` gets the records with the tags and metadata that the middleware has set. If an ID is
  /// already in use, it returns `nil`.
  static func add(
    _ records: [TaskRecord],
    to queue: String,
    through middleware: [any TaskMiddleware],
    _ add: @escaping @Sendable ([TaskRecord]) async throws -> [EnqueuedTask]?
  ) async throws -> [EnqueuedTask]? {
    let call = Call(records, add)
    let chain = EnqueueChain(rest: middleware[...], call: call)
    do {
      return try await chain(records.map { TaskDraft($0, queue: queue) })
    } catch {
      // Middleware may have caught the error for this, and thrown another one.
      if call.end.withLock({ $0.tasks == nil && $0.hasCollided }) { return nil }
      throw error
    }
  }

  /// A call that adds tasks.
  private final class Call: Sendable {
    struct End {
      var tasks: [EnqueuedTask]?
      var hasCollided = false
    }

    let end = Mutex(End())
    private let records: [TaskRecord]
    private let add: @Sendable ([TaskRecord]) async throws -> [EnqueuedTask]?

    init(
      _ records: [TaskRecord],
      _ add: @escaping @Sendable ([TaskRecord]) async throws -> [EnqueuedTask]?
    ) {
      self.records = records
      self.add = add
    }

    func add(_ drafts: [TaskDraft]) async throws {
      guard end.withLock({ $0.tasks == nil }) else {
        throw TaskQueueError(
          .invalidArgument,
          "middleware has called next again after it had added the tasks; call it once"
        )
      }
      guard drafts.map(\.id) == records.map(\.id) else {
        throw TaskQueueError(
          .invalidArgument,
          "middleware has called next with other tasks than it got; give next the same tasks, in "
            + "the same order"
        )
      }
      let tasks = try await add(try zip(records, drafts).map { try $1.applied(to: $0) })
      end.withLock { end in
        end.tasks = end.tasks ?? tasks
        end.hasCollided = tasks == nil
      }
      if tasks == nil { throw IDCollision() }
    }
  }

  /// What middleware sees if an ID is already in use.
  private struct IDCollision: Error {}
}

/// A task that is about to be added, as ``TaskMiddleware`` sees it.
public struct TaskDraft: Sendable, Identifiable {
  /// The ID that the task will have.
  ///
  /// If an existing task with the same unique key is kept instead, there is no task with this ID.
  public let id: TaskID
  /// The name under which the task's handler is registered.
  public let name: String
  /// The name of the queue.
  public let queue: String
  /// The task's labels.
  public var tags: Set<String>
  /// The text about the task (``TaskOptions/metadata``).
  public var metadata: [String: String]

  fileprivate init(_ record: TaskRecord, queue: String) {
    id = record.id
    name = record.name
    self.queue = queue
    tags = record.tags
    metadata = record.metadata
  }

  /// Returns the record of the task with the draft's tags and metadata.
  ///
  /// - Throws: A ``TaskQueueError`` if they can't be stored.
  fileprivate func applied(to record: TaskRecord) throws -> TaskRecord {
    guard tags != record.tags || metadata != record.metadata else { return record }
    try TaskQueueError.check(tags, "tags")
    let update = TaskUpdate(tags: tags, metadata: metadata)
    try update.check(.storable)
    var record = record
    record.apply(update)
    return record
  }
}
