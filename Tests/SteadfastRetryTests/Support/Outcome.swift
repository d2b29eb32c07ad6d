/// Returns how `operation` ends, in its own task, while `body` runs.
///
/// The body gets a function that cancels that task.
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

/// Cancels the task that calls it.
func cancelThisTask() {
  unsafe withUnsafeCurrentTask { task in unsafe task?.cancel() }
}
