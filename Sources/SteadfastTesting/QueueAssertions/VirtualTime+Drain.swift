public import SteadfastQueue
import SystemFoundation

extension VirtualTime {
  /// Performs all tasks in a queue, advancing the time from date to date, until the queue is empty.
  ///
  /// ```swift
  /// try await queue.enqueue(PostComment(text: "later"), delay: .seconds(86_400))
  /// #expect(try await time.drain(queue) == 1)
  /// ```
  /// Retries are performed at their dates, and so are the tasks that handlers enqueue. The queue
  /// must use this virtual time's clock and must not be running. A handler that sleeps on the clock
  /// needs an automatic virtual time; in a manual one it is stuck, and the test fails at once. When
  /// the caller is cancelled, so are the running attempts, and their tasks are released.
  /// - Parameters:
  ///   - queue: the queue.
  ///   - limit: the maximum number of attempts. An attempt beyond the limit is cancelled, and its
  ///     task is released. The limit can't stop a handler that never suspends and keeps enqueuing
  ///     another task for the same date. Only cancellation can.
  /// - Returns: the number of attempts.
  /// - Throws: a ``QueueTestError`` if tasks remain when the limit is reached, or if nothing
  ///   performs the remaining tasks; `CancellationError`; the errors of `runAvailable()`.
  @discardableResult
  public func drain(_ queue: TaskQueue, limit: Int = 10_000) async throws -> Int {
    var attempts = 0
    while true {
      attempts += try await performAvailable(in: queue, atMost: limit - attempts)
      try Task.checkCancellation()
      let left = try await queue.unfinishedTasks()
      if left.isEmpty { return attempts }
      guard attempts < limit else { throw QueueTestError.limitReached(limit, left, in: queue) }
      guard let date = nextDate(of: left) else { throw QueueTestError.tasksLeft(left, in: queue) }
      await advance(toDate: date)
    }
  }

  /// Performs the available tasks, and cancels the pass if it exceeds the limit of attempts.
  private func performAvailable(in queue: TaskQueue, atMost limit: Int) async throws -> Int {
    let events = queue.events
    return try await withThrowingTaskGroup(of: Int?.self) { group in
      group.addTask { try await queue.runAvailable() }
      group.addTask { await Self.moreAttemptsStart(than: limit, in: events) ? nil : 0 }
      let attempts = try await group.next() ?? nil
      group.cancelAll()
      if let attempts { return attempts }
      // The pass was cancelled. The attempts that it performed are within the limit.
      try? await group.waitForAll()
      return limit
    }
  }

  /// Returns `true` as soon as more attempts than the limit have started; `false` when cancelled.
  private static func moreAttemptsStart(than limit: Int, in events: TaskEvents) async -> Bool {
    var begun = 0
    for await event in events {
      if case .started = event { begun += 1 }
      if begun > limit { return true }
    }
    return false
  }

  /// Returns the first date at which one of the tasks becomes available.
  ///
  /// Returns `nil` if all of them wait for something else, or for longer than about 6,000 years. A
  /// retry whose date would be out of range has a date at the end of the year 9999.
  private func nextDate(of tasks: [TaskRecord]) -> Date? {
    let now = clock.date
    return
      tasks
      .filter {
        $0.state == .waiting || $0.state == .suspended && $0.availableDate < .distantFuture
      }
      .map(\.availableDate)
      .filter { $0 > now && $0 < now + 2e11 }
      .min()
  }

  /// Advances the time until the clock's date is `date`, unless the caller is cancelled.
  private func advance(toDate date: Date) async {
    while clock.date < date, !Task.isCancelled {
      // Advance by at least a nanosecond: converting dates to durations may round less to zero.
      await advance(by: .seconds(max(date.timeIntervalSince(clock.date), 1e-9)))
    }
  }
}
