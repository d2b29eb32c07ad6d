#if canImport(Darwin)
public import Foundation

/// A bridge to the transfers that the system goes on with while the app does not run.
///
/// It is compiled for Apple's platforms only, and was not run.
extension URLSessionTask {
  /// The token of the completion that the transfer brings, which `taskDescription` holds.
  ///
  /// Set it before the transfer is resumed. The system gives the description back in later
  /// launches.
  public var taskToken: TaskToken? {
    get { taskDescription.flatMap { TaskToken($0) } }
    set { taskDescription = newValue?.description }
  }
}

extension TaskQueue {
  /// Completes with an error what tasks await from transfers that the system has no longer.
  ///
  /// Call it after a launch, when the session's delegate has been told of all transfers that have
  /// ended. Each wait that it ends throws a ``CompletionFailed`` in its handler. A token that was
  /// not handed out is left alone: the next attempt hands it out.
  ///
  /// - Parameters:
  ///   - session: the background session with the transfers.
  ///   - name: the name of the completions that the transfers bring.
  /// - Returns: how many were lost.
  /// - Throws: what ``pendingCompletions()`` and ``complete(_:failing:)`` throw.
  @discardableResult
  public nonisolated func completeLostTransfers(
    of session: URLSession,
    named name: String
  ) async throws -> Int {
    try await completeLostTransfers(named: name) {
      Set(await session.allTasks.compactMap(\.taskToken))
    }
  }
}
#endif
