import Synchronization

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

  /// Notes that one of the two has ended; only the first call has an effect.
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

  /// Waits until the operation ends or its time is up; in the second case, cancels the operation.
  ///
  /// Starts no timer for an operation that has ended already, such as one that never suspends.
  ///
  /// - Parameters:
  ///   - limit: the time that the operation has.
  ///   - timer: counts since the operation began.
  ///   - sharedTimer: the timer that waits for the rest of the limit; if nil, a task sleeps on the
  ///     clock of `timer`.
  ///   - group: the group that runs the operation, and nothing else.
  /// - Returns: whether the operation was in time.
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
    // When the caller is cancelled, so is the operation. It may then take any time to end.
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
      do { try await timer.sleep(untilElapsed: limit) } catch { return }
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

  /// What ends first; waits until then.
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

  /// Waits for a task that is not a child of the caller; cancels it when the caller is cancelled.
  static func wait(for task: Task<Void, Never>) async {
    await withTaskCancellationHandler {
      await task.value
    } onCancel: {
      task.cancel()
    }
  }
}
