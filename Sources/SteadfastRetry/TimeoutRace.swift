/// The two tasks of a ``withTimeout(_:clock:isolation:operation:)``: the first to end stops the
/// other.
enum TimeoutRace {
  /// Which task has ended, and how.
  enum Finisher {
    case operation
    case timer
    case stoppedTimer
  }

  /// Sleeps for the limit.
  static func timer(_ limit: Duration, on clock: some Clock<Duration>) async -> Finisher {
    do {
      try await RetryTimer(clock).sleep(for: limit)
      return .timer
    } catch {
      return .stoppedTimer
    }
  }

  /// Stands for a task that is no child of the caller's: cancels it when cancelled itself.
  static func operation(_ task: Task<Void, Never>) async -> Finisher {
    await withTaskCancellationHandler {
      await task.value
    } onCancel: {
      task.cancel()
    }
    return .operation
  }

  /// Waits for both; whether the operation was there first.
  static func isWonByOperation(
    _ group: inout TaskGroup<Finisher>,
    isolation: isolated (any Actor)? = #isolation
  ) async -> Bool {
    var isInTime = true
    var isOver = false
    while let finisher = await group.next() {
      switch finisher {
      case .operation: isOver = true
      case .timer: isInTime = isOver
      // The caller was cancelled: so was the operation, which has all the time it wants to end.
      case .stoppedTimer: continue
      }
      group.cancelAll()
    }
    return isInTime
  }
}
