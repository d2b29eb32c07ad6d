/// Runs `operation` in a task while `body` runs, and returns the operation's result or error.
///
/// The body gets a function that cancels the task of `operation`.
func outcome<Value: Sendable, Failure: Error>(
  of operation: @escaping @Sendable () async throws(Failure) -> Value,
  while body: (_ cancel: () -> Void) async throws -> Void
) async throws -> Result<Value, Failure> {
  try await withThrowingTaskGroup(of: Result<Value, Failure>.self) { group in
    group.addTask {
      do throws(Failure) {
        return .success(try await operation())
      } catch {
        return .failure(error)
      }
    }
    try await body { group.cancelAll() }
    for try await outcome in group { return outcome }
    throw CancellationError()
  }
}

/// Cancels the current task.
func cancelThisTask() {
  unsafe withUnsafeCurrentTask { task in unsafe task?.cancel() }
}
