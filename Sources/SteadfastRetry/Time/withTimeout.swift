import Synchronization

/// Calls `operation`, and cancels it if it has not ended within `limit`.
///
/// ```swift
/// let page = try await withRetry(.attempts(3)) {
///   try await withTimeout(.seconds(5)) { try await fetch(page: 1) }
/// }
/// ```
/// The function returns or throws only when the operation has ended, so nothing continues to run
/// after it. It waits even for an operation that ignores its cancellation. If the time is up first,
/// the function throws `TimeoutError`, whatever the cancelled operation then returns or throws:
/// that could be a partial result, such as the beginning of a stream.
///
/// The operation is a child task in the caller's isolation. It may use an actor's state, and the
/// result need not be `Sendable`. With a limit of zero or less, the operation does not start.
///
/// Cancelling the caller's task cancels the operation. The function then returns or throws what the
/// operation does.
///
/// A limit that is not reached takes little time and memory, however long it is. An operation that
/// does not suspend starts no timer. Other operations share one timer for each of the system's
/// clocks, and nothing remains of a limit when its operation ends. A limit of more than 136 years
/// counts as 136 years.
/// - Parameters:
///   - limit: how long the operation may take.
///   - clock: the clock that measures the limit.
///   - isolation: the isolation in which the operation runs; by default the caller's.
///   - operation: the operation that must end within the limit.
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
      // Only these two ways to start a task let the task inherit an isolation that is known only at
      // run time, and capture values of that isolation.
      if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
        group.addImmediateTask {
          _ = isolation
          do { result = .success(try await operation()) } catch { result = .failure(error) }
          race.end(.operation)
        }
      } else {
        // Without `addImmediateTask`, the operation can't be a child task. Instead, a child task
        // waits for the operation, and cancels it when the child task is cancelled.
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

/// The error of an operation that was cancelled because it did not end in time.
///
/// By default, `withRetry` tries again after a `TimeoutError`, as after any other error.
public struct TimeoutError: Error, Sendable, Hashable, CustomStringConvertible {
  /// How long the operation was allowed to take.
  public let limit: Duration

  /// Makes the error of an operation that took longer than `limit`.
  public init(limit: Duration) { self.limit = limit }

  /// What happened, and what to do about it.
  public var description: String {
    "the operation did not end within \(limit) and was cancelled; "
      + "try again, or give withTimeout a longer limit"
  }
}

/// A race between an operation and its time limit: the first to end decides.
final class TimeoutRace: Sendable {
  /// What ended first.
  enum Ending {
    case operation
    case timeIsUp
  }

  private enum State {
    case running
    case awaited(CheckedContinuation<Ending, Never>)
    case over(Ending)
  }

  private let state = Mutex(State.running)

  /// Records that the operation has ended, or that its time is up; all calls but the first have no
  /// effect.
  func end(_ ending: Ending) {
    let waiter: CheckedContinuation<Ending, Never>? = state.withLock { state in
      switch state {
      case .over: return nil
      case .running:
        state = .over(ending)
        return nil
      case .awaited(let waiter):
        state = .over(ending)
        return waiter
      }
    }
    waiter?.resume(returning: ending)
  }

  /// Waits until the operation ends or its time is up; if its time is up first, cancels the
  /// operation.
  ///
  /// If the operation has already ended, for example because it never suspended, no timer is
  /// started.
  ///
  /// - Parameters:
  ///   - limit: the operation's time limit.
  ///   - timer: measures the time since the operation began.
  ///   - sharedTimer: the timer that waits for the rest of the limit; if it is `nil`, a task sleeps
  ///     on the clock of `timer`.
  ///   - group: the group that runs the operation, and nothing else.
  /// - Returns: whether the operation has ended in time, or was cancelled with its caller.
  func isWonByOperation<C>(
    within limit: Duration,
    of timer: RetryTimer<C>,
    on sharedTimer: SharedTimer?,
    in group: inout TaskGroup<Void>
  ) async -> Bool {
    let hasEnded = isOver
    var timer = timer
    let elapsed = timer.elapsed()
    if hasEnded { return elapsed <= limit || Task.isCancelled }
    let ending: Ending
    if elapsed >= limit {
      ending = .timeIsUp
    } else if let sharedTimer {
      let ticket = sharedTimer.add(.limit(self), after: (limit - elapsed).sleepable)
      ending = await firstEnding
      sharedTimer.remove(ticket)
    } else {
      ending = await firstEnding(within: limit, of: timer, in: &group)
    }
    // When the caller is cancelled, so is the operation, and there is no time limit any longer.
    guard ending == .timeIsUp, !Task.isCancelled else { return true }
    group.cancelAll()
    return false
  }

  private func firstEnding<C>(
    within limit: Duration,
    of timer: RetryTimer<C>,
    in group: inout TaskGroup<Void>
  ) async -> Ending {
    group.addTask {
      do { try await timer.sleep(untilTimeSinceStart: limit) } catch { return }
      self.end(.timeIsUp)
    }
    let ending = await firstEnding
    group.cancelAll()
    return ending
  }

  private var isOver: Bool {
    state.withLock { state in
      switch state {
      case .over: true
      case .running, .awaited: false
      }
    }
  }

  /// What ends first: the operation or its time.
  ///
  /// Reading this waits until one of them has ended.
  var firstEnding: Ending {
    get async {
      await withCheckedContinuation { waiter in
        let ending: Ending? = state.withLock { state in
          if case .over(let ending) = state { return ending }
          state = .awaited(waiter)
          return nil
        }
        if let ending { waiter.resume(returning: ending) }
      }
    }
  }

  /// Waits for a task that is not a child task, and cancels it when the caller is cancelled.
  static func wait(for task: Task<Void, Never>) async {
    await withTaskCancellationHandler {
      await task.value
    } onCancel: {
      task.cancel()
    }
  }
}
