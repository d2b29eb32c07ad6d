@testable import SteadfastQueue

/// Returns the `TaskQueueError` that the body throws, or `nil` if it throws another error or none.
func queueError<Result: Sendable>(
  _ body: @Sendable () async throws -> Result
) async -> TaskQueueError? {
  do {
    _ = try await body()
    return nil
  } catch {
    return error as? TaskQueueError
  }
}
