public import SteadfastQueue
import SystemFoundation

extension VirtualTime {
  /// Performs the tasks in a queue, moving the time to the date of each task, until none is left.
  ///
  /// ```swift
  /// try await queue.enqueue(PostComment(text: "later"), delay: .seconds(86_400))
  /// #expect(try await time.drain(queue) == 1)
  /// ```
  /// Retries are performed at their dates, and so are the tasks that handlers enqueue. The queue
  /// must use this virtual time's clock and must not be running. A handler may sleep on the clock
  /// only if the virtual time is automatic; if it is manual, the test fails at once. When the
  /// caller is cancelled, so are the running attempts, and their tasks are released.
  /// - Parameters:
  ///   - queue: the queue.
  ///   - limit: the maximum number of attempts. An attempt beyond the limit is cancelled, and its
  ///     task is released. If handlers keep enqueuing tasks for the same date and never suspend,
  ///     the limit has no effect; cancel the caller instead.
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

  /// Performs the available tasks, and returns the number of attempts, which is at most `limit`.
  ///
  /// If more attempts start, they are cancelled.
  private func performAvailable(in queue: TaskQueue, atMost limit: Int) async throws -> Int {
    let events = queue.events
    return try await withThrowingTaskGroup(of: Int?.self) { group in
      group.addTask { try await queue.runAvailable() }
      group.addTask { await Self.waitForMoreAttempts(than: limit, in: events) ? nil : 0 }
      let attempts = try await group.next() ?? nil
      group.cancelAll()
      if let attempts { return attempts }
      try? await group.waitForAll()
      return limit
    }
  }

  /// Waits until more attempts than `limit` have started, and returns `true`; `false` if cancelled.
  private static func waitForMoreAttempts(than limit: Int, in events: TaskEvents) async -> Bool {
    var begun = 0
    for await event in events {
      if case .started = event { begun += 1 }
      if begun > limit { return true }
    }
    return false
  }

  /// Returns the first date at which one of the tasks becomes available.
  ///
  /// Returns `nil` if no task waits for a date within about 6,000 years. A retry whose date would
  /// be out of range has a date at the end of the year 9999.
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
      // A difference of less than a nanosecond may be rounded to zero, and the loop would not end.
      await advance(by: .seconds(max(date.timeIntervalSince(clock.date), 1e-9)))
    }
  }
}
