import SteadfastQueue
public import SystemFoundation

/// Why a test could not inspect or run a queue.
public struct QueueTestError: Error, Sendable, CustomStringConvertible {
  /// The kind of a ``QueueTestError``; later versions may add more.
  public struct Code: Sendable, Hashable, CustomStringConvertible {
    /// The code's name.
    public let description: String

    /// A payload can't be decoded from its stored bytes; after a restart, a queue would park its
    /// task.
    public static let unreadablePayload = Code(description: "unreadablePayload")
    /// A queue was not empty after the maximum number of attempts.
    public static let limitReached = Code(description: "limitReached")
    /// A queue is not empty, and nothing will perform its remaining tasks.
    public static let tasksLeft = Code(description: "tasksLeft")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do about it.
  public let description: String
}

extension QueueTestError {
  static func limitReached(
    _ limit: Int,
    _ left: [TaskRecord],
    in queue: TaskQueue
  ) -> QueueTestError {
    QueueTestError(
      code: .limitReached,
      description: """
        the queue '\(queue.name)' is not empty after \(limit) attempts, \(summary(of: left)). If \
        tasks are enqueued or retried forever, run the queue with run(), for as long as the test \
        needs, and call advance(by:). Otherwise raise the limit of drain(_:limit:)
        """
    )
  }

  static func tasksLeft(_ left: [TaskRecord], in queue: TaskQueue) -> QueueTestError {
    var obstacles: [String] = queue.isPaused ? ["the queue is paused; resume it"] : []
    for obstacle in left.compactMap(queue.obstacle) where !obstacles.contains(obstacle) {
      obstacles.append(obstacle)
    }
    if obstacles.isEmpty {
      obstacles = ["give the queue this virtual time's clock, and finish what the tasks wait for"]
    }
    return QueueTestError(
      code: .tasksLeft,
      description: """
        the queue '\(queue.name)' is not empty, and nothing performs the remaining tasks, \
        \(summary(of: left)): \(obstacles.prefix(5).joined(separator: "; "))
        """
    )
  }

  private static func summary(of tasks: [TaskRecord]) -> String {
    let shown = tasks.prefix(5).map { task in
      let error = task.lastError.map { ", last error: \($0)" } ?? ""
      return "\(task.name) (\(task.state), retry \(task.retryCount)\(error))"
    }
    let more = tasks.count > shown.count ? ", and so on" : ""
    let noun = tasks.count == 1 ? "1 task" : "\(tasks.count) tasks"
    return "\(noun): \(shown.joined(separator: ", "))\(more)"
  }
}

extension QueueTestError: LocalizedError {
  /// What is wrong and what to do about it.
  public var errorDescription: String? { description }
}
