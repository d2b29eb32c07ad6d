#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

// What one may guess, and what has another form. Without these, a call is an error of the
// compiler's all the same. With them, the error says what to write.

extension TaskQueue {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func cancel(_ task: EnqueuedTask) async throws -> Bool {
    try await cancel(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func pause(_ task: EnqueuedTask) async throws -> Bool {
    try await pause(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func resume(_ task: EnqueuedTask) async throws -> Bool {
    try await resume(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func restart(_ task: EnqueuedTask) async throws -> Bool {
    try await restart(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func remove(_ task: EnqueuedTask) async throws -> Bool {
    try await remove(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id, or call reschedule(to:) of the task")
  @discardableResult
  public nonisolated func reschedule(
    _ task: EnqueuedTask,
    to date: Date? = nil
  ) async throws -> Bool {
    try await reschedule(task.id, to: date)
  }
}

extension TaskContext {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }
}

extension TaskAbandoned {
  /// Not here: the reason is a text.
  @available(
    *,
    unavailable,
    message: "give the reason as a text, or throw an error whose retryDecision is .stop"
  )
  public init(_ error: any Error) { self.init("\(error)") }
}
