public import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension VirtualTime {
  /// Performs all that is in a queue, and moves the time from one date to the next until it is
  /// empty.
  ///
  /// ```swift
  /// try await queue.enqueue(PostComment(text: "later"), availableDate: time.clock.date + 86_400)
  /// #expect(try await time.drain(queue) == 1)
  /// ```
  /// Retries are performed at their dates, and so is what handlers enqueue. The queue must have this
  /// virtual time's clock and not be running. A handler that sleeps on the clock needs an automatic
  /// virtual time; in a manual one it is stuck, and that fails at once. When the caller is cancelled
  /// the attempts under way are, and their tasks are put back.
  /// - Parameters:
  ///   - queue: the queue.
  ///   - limit: how many attempts are allowed. One that goes beyond it is cancelled and put back; a
  ///     handler that enqueues its successor for the same date, over and over, and never suspends,
  ///     can't be stopped by the limit, only by cancelling.
  /// - Returns: the number of attempts.
  /// - Throws: a ``QueueTestError`` when the limit is reached and tasks are left, or when tasks are
  ///   left that nothing performs; `CancellationError`; what `runAvailable()` throws.
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

  /// Performs what is available, and cancels that when more attempts begin than are allowed.
  private func performAvailable(in queue: TaskQueue, atMost limit: Int) async throws -> Int {
    let events = queue.events
    return try await withThrowingTaskGroup(of: Int?.self) { group in
      group.addTask { try await queue.runAvailable() }
      group.addTask { await Self.count(events, upTo: limit) ? nil : 0 }
      let attempts = try await group.next() ?? nil
      group.cancelAll()
      if let attempts { return attempts }
      // The pass was cut short; what it did is within the limit.
      try? await group.waitForAll()
      return limit
    }
  }

  /// Whether more attempts were seen to begin than are allowed; `false` when cancelled.
  private static func count(_ events: TaskEvents, upTo limit: Int) async -> Bool {
    var begun = 0
    for await event in events {
      if case .started = event { begun += 1 }
      if begun > limit { return true }
    }
    return false
  }

  /// The first date at which one of the tasks becomes available; `nil` if all wait for something
  /// else, or for longer than some 30,000 years.
  private func nextDate(of tasks: [TaskRecord]) -> Date? {
    let now = clock.date
    return
      tasks
      .filter { $0.state == .waiting }
      .map(\.availableDate)
      .filter { $0 > now && $0 < now + 1e12 }
      .min()
  }

  /// Moves the time until the clock tells this date, unless the caller is cancelled.
  private func advance(toDate date: Date) async {
    while clock.date < date, !Task.isCancelled {
      // A nanosecond at least: less may be lost between dates and durations.
      await advance(by: .seconds(max(date.timeIntervalSince(clock.date), 1e-9)))
    }
  }
}
