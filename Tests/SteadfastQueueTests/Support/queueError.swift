@testable import SteadfastQueue

/// The queue's error that the body throws; `nil` if it throws none, or another one.
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
