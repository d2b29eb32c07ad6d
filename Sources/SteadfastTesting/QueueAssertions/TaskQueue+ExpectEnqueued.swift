#if canImport(Testing)
public import SteadfastQueue
public import Testing

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Expects that a task with this payload was enqueued and has not ended; else records an issue
  /// that lists the tasks of the type that are there.
  ///
  /// ```swift
  /// try await queue.expectEnqueued(PostComment(text: "later"), availableDate: clock.date + 60)
  /// ```
  /// - Parameters:
  ///   - payload: what its handler is to be given.
  ///   - availableDate: the date from which it may be performed, to the microsecond; `nil` for any.
  ///   - sourceLocation: where an issue is recorded.
  /// - Returns: the first such task; `nil` if there is none.
  /// - Throws: as ``pendingTasks(of:)``.
  @discardableResult
  public nonisolated func expectEnqueued<Payload: TaskPayload & Equatable>(
    _ payload: Payload,
    availableDate: Date? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> PendingTask<Payload>? {
    let tasks = try await pendingTasks(of: Payload.self)
    let task = tasks.first { task in
      // A store may keep dates a little more coarsely than memory does.
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
}
#endif
