@testable import SteadfastQueue

/// Runs a queue while the body runs, and shuts it down when the body returns.
func withRunning<Result: Sendable>(
  _ queue: TaskQueue,
  _ body: @Sendable () async throws -> Result
) async throws -> Result {
  try await withThrowingTaskGroup { group in
    group.addTask { try await queue.run() }
    let result: Result
    do {
      result = try await body()
    } catch {
      group.cancelAll()
      throw error
    }
    await queue.shutDown()
    try await group.waitForAll()
    return result
  }
}
