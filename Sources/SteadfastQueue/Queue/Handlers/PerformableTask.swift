/// A payload that performs itself.
///
/// ```swift
/// struct Sync: PerformableTask {
///   func perform(in context: TaskContext) async throws {
///     try await syncEverything()
///   }
/// }
/// await queue.register(Sync.self)
/// ```
public protocol PerformableTask: TaskPayload {
  /// What it returns, for callers that hold the task.
  associatedtype Output: Sendable = Void

  /// Does the work: returning is success, throwing is failure.
  ///
  /// The same rules hold as for a handler given to
  /// ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(in context: TaskContext) async throws -> Output
}
