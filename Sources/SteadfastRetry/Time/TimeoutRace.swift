import Synchronization

/// An operation and the time that it has: the first to end decides.
final class TimeoutRace: Sendable {
  /// Which of the two has ended.
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

  /// One of the two has ended; what comes second changes nothing.
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

  /// Waits for the first to end, and stops the operation if that is not it.
  ///
  /// Nothing is begun for an operation that has ended already, as one that never suspends has.
  ///
  /// - Parameters:
  ///   - limit: the time that the operation has.
  ///   - timer: counts since the operation began.
  ///   - sharedTimer: where the rest of the limit is waited for; where there is none, the clock of the
  ///     timer is slept on.
  ///   - group: what runs the operation, and nothing else.
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
    // When the caller is cancelled so is the operation, which has all the time it wants to end.
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

  /// Waits for the first to end.
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

  /// Stands for a task that is no child of the caller's: cancels it when cancelled itself.
  static func wait(for task: Task<Void, Never>) async {
    await withTaskCancellationHandler {
      await task.value
    } onCancel: {
      task.cancel()
    }
  }
}
