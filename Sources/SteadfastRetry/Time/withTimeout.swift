/// Calls `operation`, and cancels it if it has not ended within `limit`.
///
/// ```swift
/// let page = try await withRetry(.attempts(3)) {
///   try await withTimeout(.seconds(5)) { try await fetch(page: 1) }
/// }
/// ```
/// It returns or throws only once the operation has ended, so that nothing goes on behind the
/// caller's back: an operation that ignores its cancellation is waited for. When the time is up,
/// `TimeoutError` is thrown whatever the operation then returns or throws, because what is left of
/// a cancelled operation, such as the part of a stream that had arrived, is not its result.
///
/// The operation is a child task in the caller's isolation: it may touch an actor's state, and the
/// result need not be `Sendable`. With a limit of zero or less it is not begun.
///
/// Cancelling the task cancels the operation, whose own result or error is then the outcome.
///
/// A limit that is not reached costs little, however long it is: an operation that does not suspend
/// begins no timer, others share one on the system's clocks, and once the operation has ended
/// nothing is left of its limit. A limit of more than 136 years is one of 136 years.
/// - Parameters:
///   - limit: how long the operation may take.
///   - clock: what the time is slept on.
///   - isolation: where the operation runs; by default where the caller does.
///   - operation: what is to end in time.
/// - Returns: what the operation returned.
/// - Throws: ``TimeoutError`` if the time is up first, else what the operation threw.
public func withTimeout<Success>(
  _ limit: Duration,
  clock: some Clock<Duration> = ContinuousClock(),
  isolation: isolated (any Actor)? = #isolation,
  operation: () async throws -> Success
) async throws -> Success {
  guard limit > .zero else { throw TimeoutError(limit: limit) }
  var timer = RetryTimer(clock)
  timer.start()
  let race = TimeoutRace()
  var result: Result<Success, any Error> = .failure(TimeoutError(limit: limit))
  let isInTime = await withoutActuallyEscaping(operation) { operation in
    await withTaskGroup(of: Void.self) { group in
      // Only these two ways of starting a task let it inherit an isolation that is not known until
      // run time, and what is captured with it.
      if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
        group.addImmediateTask {
          _ = isolation
          do { result = .success(try await operation()) } catch { result = .failure(error) }
          race.end(.operation)
        }
      } else {
        // No child, for want of the other way; the one that waits for it hands a cancellation on.
        let task = Task {
          _ = isolation
          do { result = .success(try await operation()) } catch { result = .failure(error) }
          race.end(.operation)
        }
        group.addTask { await TimeoutRace.wait(for: task) }
      }
      return await race.isWonByOperation(within: limit, of: timer, on: .of(clock), in: &group)
    }
  }
  guard isInTime else { throw TimeoutError(limit: limit) }
  return try result.get()
}

/// An operation was cancelled because it did not end in time.
///
/// `withRetry` tries again after it, as after any error.
public struct TimeoutError: Error, Sendable, Hashable, CustomStringConvertible {
  /// How long the operation could have taken.
  public let limit: Duration

  /// Describes an operation that took longer than this.
  public init(limit: Duration) { self.limit = limit }

  /// What happened, and what to do about it.
  public var description: String {
    "the operation did not end within \(limit) and was cancelled; "
      + "try again, or give withTimeout a longer limit"
  }
}
