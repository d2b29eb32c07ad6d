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
        return TaskQueueError(
          .alreadyRunning,
          "the group '\(name)' runs already; wait for that run to end, or cancel it"
        )
      }
      if state.isShutDown {
        return shutDownError
      }
      state.run = continuation
      for queue in state.sortedQueues { continuation.yield(queue) }
      return nil
    }
    if let error { throw error }
  }

  private func endRun() { state.withLock { $0.run = nil } }

  /// Performs the tasks of all queues that are available now, and returns when they are done.
  ///
  /// Queues that are added later, and those that were shut down alone, are left out. If one queue
  /// fails, the others are cancelled.
  ///
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/runAvailable()``.
  @discardableResult
  public func runAvailable() async throws -> Int {
    try await pass { try await $0.runAvailable() }
  }

  /// Performs the tasks of all queues that are available now and can be expected to end in time.
  ///
  /// All queues do at the same time what ``TaskQueue/run(within:)`` does, each with its own workers
  /// and averages, and all have the same time. When it is up, or the call is cancelled, attempts
  /// under way are cancelled and their tasks wait as before. Queues that are added later, and those
  /// that were shut down alone, are left out. If one queue fails, the others are cancelled.
  ///
  /// - Parameter budget: how long attempts may go on, from the call on. With zero or less, nothing
  ///   is performed.
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/run(within:)``.
  @discardableResult
  public func run(within budget: Duration) async throws -> Int {
    let time = QueueTime(clock)
    let deadline = time.deadline(after: budget)
    return try await pass { try await $0.run(within: deadline - time.stopwatch()) }
  }

  private func pass(
    _ body: @escaping @Sendable (TaskQueue) async throws -> Int
  ) async throws -> Int {
    let queues = try state.withLock { state throws(TaskQueueError) in
      if state.isShutDown { throw shutDownError }
      return state.sortedQueues
    }
    return try await withThrowingTaskGroup { group in
      for queue in queues {
        group.addTask {
          do {
            return try await body(queue)
          } catch let error as TaskQueueError where error.code == .shutDown {
            return 0
          }
        }
      }
      return try await group.reduce(0, +)
    }
  }

  /// Waits until every queue is idle, and none has given work to another one.
  ///
  /// - Throws: The errors of ``TaskQueue/waitUntilIdle()``, also if a handler of any of the queues
  ///   calls it (``TaskQueueError/Code/waitsForItself``).
  public func waitUntilIdle() async throws {
    for queue in queues { try queue.checkCanWaitUntilIdle() }
    var areIdle = false
    while !areIdle {
      // First the count: what begins later changes it, and what began before is done or under way.
      let count = workCount
      let isQuiet = queues.allSatisfy { !$0.hasWorkUnderWay }
      for queue in queues { try await queue.waitUntilIdle() }
      // While one queue performs something, it may give work to another that was idle already.
      areIdle = isQuiet && count == workCount
    }
  }

  /// How many attempts have begun in all queues since they were made, and how many tasks were
  /// abandoned, which may be done without an attempt.
  private var workCount: Int {
    queues.reduce(0) { count, queue in
      let statistics = queue.observers.statistics.withLock { $0.statistics }
      return count + statistics.attempts + statistics.abandoned
    }
  }

  /// Pauses all queues, as ``TaskQueue/pause()`` does.
  public func pause() async {
    await forEach { await $0.pause() }
  }

  /// Undoes ``pause()`` for all queues, also for those that were paused alone.
  public func resume() async {
    await forEach { await $0.resume() }
  }

  /// Pauses all queues of the group, in every process, as ``TaskQueue/pause(durability:)`` does.
  ///
  /// A queue that is added later is not paused, unless its own pause is stored already.
  ///
  /// - Parameter durability: what the pauses survive once the call has returned.
  /// - Throws: The same errors as for one queue. Some queues may be paused by then.
  public func pause(durability: Durability) async throws {
    for queue in queues { try await queue.pause(durability: durability) }
  }

  /// Undoes ``pause(durability:)`` for all queues, also for those that were paused alone.
  ///
  /// - Parameter durability: what the end of the pauses survives once the call has returned.
  /// - Throws: The same errors as for one queue. Some queues may have been resumed by then.
  public func resume(durability: Durability) async throws {
    for queue in queues { try await queue.resume(durability: durability) }
  }

  /// Shuts all queues down, as ``TaskQueue/shutDown(within:)`` does.
  ///
  /// No queue can be added any more. ``run()`` then returns.
  ///
  /// Without a limit, a call from a handler of any of the queues, or from something that the
  /// handler started, returns at once, as ``beginShutDown(within:)`` does: two handlers that call
  /// it would wait for each other.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown(within: limit)
    if limit == nil, queues.contains(where: { $0.callingTask != nil }) { return }
    await forEach { await $0.shutDown(within: limit) }
  }

  /// Begins what ``shutDown(within:)`` does, without waiting.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
  public func beginShutDown(within limit: Duration? = nil) {
    let queues = state.withLock { state in
      state.isShutDown = true
      state.run?.finish()
      return state.sortedQueues
    }
    for queue in queues { queue.beginShutDown(within: limit) }
  }

  private func forEach(_ body: @Sendable @escaping (TaskQueue) async -> Void) async {
    await withDiscardingTaskGroup { group in
      for queue in queues { group.addTask { await body(queue) } }
    }
  }
}

extension TaskQueue {
  /// Whether attempts, or what was asked of tasks, are under way, or their ends are not stored yet.
  fileprivate nonisolated var hasWorkUnderWay: Bool {
    machine.withLock { $0.performing > 0 || !$0.obeying.isEmpty || !$0.outbox.isEmpty }
  }
}
