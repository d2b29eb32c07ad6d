#if canImport(Testing)
public import SteadfastQueue
public import Testing

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Expects that a task with this payload was enqueued and has not ended.
  ///
  /// Otherwise it records an issue that lists the tasks of this type in the queue.
  ///
  /// ```swift
  /// let later = PostComment(text: "later")
  /// try await queue.expectEnqueued(later, availableDate: clock.date + 60)
  /// ```
  /// - Parameters:
  ///   - payload: the payload that its handler is to get.
  ///   - availableDate: the date from which the task may be performed, to the microsecond; `nil`
  ///     for any date.
  ///   - sourceLocation: where an issue is recorded.
  /// - Returns: the first such task; `nil` if there is none.
  /// - Throws: the errors of ``pendingTasks(of:)``.
  @discardableResult
  public nonisolated func expectEnqueued<Payload: TaskPayload & Equatable>(
    _ payload: Payload,
    availableDate: Date? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> PendingTask<Payload>? {
    let tasks = try await pendingTasks(of: Payload.self)
    let task = tasks.first { task in
      // A store may store dates a little less precisely than memory holds them.
      task.payload == payload
        && availableDate.map { abs($0.timeIntervalSince(task.record.availableDate)) < 1e-6 } ?? true
    }
    if task == nil {
      let wanted = availableDate.map { "\(payload) at \($0)" } ?? "\(payload)"
      let found = tasks.map { "\($0.payload) at \($0.record.availableDate)" }
      Issue.record(
        """
        \(wanted) is not in the queue '\(name)'. Of \(Payload.taskName) it has \
        \(found.isEmpty ? "nothing" : found.joined(separator: ", "))
        """,
        sourceLocation: sourceLocation
      )
    }
    return task
  }

  /// Not here: a payload is expected, and not a type.
  @available(*, unavailable, message: "give the payload, or look at pendingTasks(of:)")
  public nonisolated func expectEnqueued<Payload: TaskPayload>(_ type: Payload.Type) async throws {}
}
#endif
