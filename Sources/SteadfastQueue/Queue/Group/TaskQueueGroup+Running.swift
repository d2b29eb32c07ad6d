import Synchronization

/// Everything that a group does with all of its queues at once.
extension TaskQueueGroup {
  /// Performs the tasks of all queues until it is cancelled or the group is shut down.
  ///
  /// Queues that are added later run, too. A queue that is shut down alone leaves the others
  /// running. If one queue fails, the others are cancelled.
  ///
  /// - Throws: `CancellationError`; a ``TaskQueueError`` if the group runs already
  ///   (``TaskQueueError/Code/alreadyRunning``) or was shut down; the errors of
  ///   ``TaskQueue/run()``.
  public func run() async throws {
    let (queues, continuation) = AsyncStream.makeStream(of: TaskQueue.self)
    try beginRun(continuation)
    defer { endRun() }
    try await withThrowingDiscardingTaskGroup { group in
      for await queue in queues {
        group.addTask {
          do {
            try await queue.run()
          } catch let error as TaskQueueError where error.code == .shutDown {
            // The others go on.
          } catch {
            continuation.finish()
            throw error
          }
        }
      }
      // The sequence ends with the shutdown, or because of a cancellation.
      try Task.checkCancellation()
    }
  }

  private func beginRun(
    _ continuation: AsyncStream<TaskQueue>.Continuation
  ) throws(TaskQueueError) {
    let error = state.withLock { state -> TaskQueueError? in
      if state.run != nil {
        return TaskQueueError(.alreadyRunning, "the group '\(name)' runs already")
      }
      if state.isShutDown {
        return TaskQueueError(.shutDown, "the group '\(name)' was shut down; make a new one")
      }
      state.run = continuation
      for queue in state.queues.values { continuation.yield(queue) }
      return nil
    }
    if let error { throw error }
  }

  private func endRun() { state.withLock { $0.run = nil } }

  /// Performs the tasks of all queues that are available now, and returns when they are done.
  ///
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/runAvailable()``.
  @discardableResult
  public func runAvailable() async throws -> Int {
    try await withThrowingTaskGroup { group in
      for queue in queues { group.addTask { try await queue.runAvailable() } }
      return try await group.reduce(0, +)
    }
  }

  /// Waits until every queue is idle, and none has given work to another one.
  ///
  /// - Throws: The errors of ``TaskQueue/waitUntilIdle()``.
  public func waitUntilIdle() async throws {
    var (count, countBefore) = (attemptCount, -1)
    // While a queue performs something, a task of another one that waits for it may be available.
    while count != countBefore {
      for queue in queues { try await queue.waitUntilIdle() }
      (count, countBefore) = (attemptCount, count)
    }
  }

  /// How many attempts have begun in all queues since they were made.
  private var attemptCount: Int {
    queues.reduce(0) { $0 + $1.observers.statistics.withLock { $0.statistics.attempts } }
  }

  /// Pauses all queues, as ``TaskQueue/pause()`` does.
  public func pause() async {
    await forEach { await $0.pause() }
  }

  /// Undoes ``pause()`` for all queues, also for those that were paused alone.
  public func resume() async {
    await forEach { await $0.resume() }
  }

  /// Shuts all queues down, as ``TaskQueue/shutDown(within:)`` does.
  ///
  /// No queue can be added any more. ``run()`` then returns.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown(within: limit)
    await forEach { await $0.shutDown(within: limit) }
  }

  /// Begins what ``shutDown(within:)`` does, without waiting.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
  public func beginShutDown(within limit: Duration? = nil) {
    let queues = state.withLock { state in
      state.isShutDown = true
      state.run?.finish()
      return state.queues.values.map(\.self)
    }
    for queue in queues { queue.beginShutDown(within: limit) }
  }

  private func forEach(_ body: @Sendable @escaping (TaskQueue) async -> Void) async {
    await withDiscardingTaskGroup { group in
      for queue in queues { group.addTask { await body(queue) } }
    }
  }
}
