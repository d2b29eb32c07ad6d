import Synchronization

/// Decides about tasks that were under way when their process ended, and may have caused that.
///
/// The cause may also be another task, or the program itself, for example after a bad deployment.
/// So a task that was interrupted twice is a *suspect*, and a queue performs one suspect at a time:
/// suspects can't interrupt each other. A process abandons a task only after it has performed
/// another one, or has survived for a while without it.
///
/// The queues of a group share this object, because they are in one process.
final class Suspects: Sendable {
  enum Ruling: Equatable {
    /// Perform it; ``Suspects/endAttempt(of:)`` follows.
    case attempt
    /// Try again after the delay.
    case postpone(Duration)
    /// It was interrupted too often: ``AttemptJudge`` abandons it.
    case abandon
  }

  private struct State {
    /// The suspect that is being performed, and its start.
    var current: (id: TaskID, since: Duration)?
    /// When the process first claimed a task that was interrupted too often.
    var probationStart: Duration?
  }

  static let interruptionCount = 2
  /// How long a process that has performed nothing must survive before it abandons a task.
  static let probation = Duration.seconds(10)
  private static let delays = Duration.milliseconds(100)...Duration.seconds(60)

  private let state = Mutex(State())

  /// Decides whether to attempt a task that was interrupted.
  ///
  /// - Parameters:
  ///   - record: The task.
  ///   - exceedsLimit: Whether it was interrupted more often than the configuration allows.
  ///   - abandonsAtOnce: Whether the process has performed other tasks, or may end soon.
  ///   - now: The time on the queue's stopwatch.
  /// - Returns: The decision.
  func ruling(
    on record: TaskRecord,
    exceedsLimit: Bool,
    abandonsAtOnce: Bool,
    at now: Duration
  ) -> Ruling {
    state.withLock { state in
      if exceedsLimit {
        let begin = state.probationStart ?? now
        state.probationStart = begin
        let left = begin + Self.probation - now
        return abandonsAtOnce || left <= .zero ? .abandon : .postpone(left)
      }
      guard record.interruptionCount >= Self.interruptionCount else { return .attempt }
      if let current = state.current {
        // The longer the current suspect takes, the longer this one waits for its next try.
        let delay = max(now - current.since, Self.delays.lowerBound)
        return .postpone(min(delay, Self.delays.upperBound))
      }
      state.current = (record.id, now)
      return .attempt
    }
  }

  /// Ends the attempt of a task that was interrupted.
  func endAttempt(of id: TaskID) {
    state.withLock { if $0.current?.id == id { $0.current = nil } }
  }
}
