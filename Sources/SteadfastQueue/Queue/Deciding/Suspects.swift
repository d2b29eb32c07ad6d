import Synchronization

/// Decides whether to attempt tasks that were being performed when their process ended.
///
/// Such a task may have crashed the process, but so may another task or the program itself. A task
/// that was interrupted twice is a *suspect*. A process performs only one suspect at a time: if
/// that suspect crashes the process, it interrupts no other suspect. A process abandons a task that
/// was interrupted too often only after it has performed another task, or has run for a while. So a
/// bad deployment, which crashes every process, does not make the queue abandon all tasks.
///
/// The queues of a group share this object, because they are in one process.
final class Suspects: Sendable {
  enum Ruling: Equatable {
    /// Attempt the task, and then call ``Suspects/endAttempt(of:)``.
    case attempt
    /// Ask again after the delay.
    case postpone(Duration)
    /// Abandon the task, because it was interrupted too often.
    case abandon
  }

  private struct State {
    /// The suspect that is being performed, and when its attempt began.
    var current: (id: TaskID, since: Duration)?
    /// When the process first claimed a task that was interrupted too often.
    var probationStart: Duration?
  }

  /// The number of interruptions that makes a task a suspect.
  static let interruptionCount = 2
  /// How long a process that has performed nothing must run before it abandons a task.
  static let probation = Duration.seconds(10)
  private static let delays = Duration.milliseconds(100)...Duration.seconds(60)

  private let state = Mutex(State())

  /// Decides whether to attempt a task that was interrupted.
  ///
  /// - Parameters:
  ///   - record: The task.
  ///   - exceedsLimit: Whether it was interrupted more often than the configuration allows.
  ///   - abandonsAtOnce: Whether a task that exceeds the limit is abandoned without a delay,
  ///     because the process has performed other tasks, or may end soon.
  ///   - now: The time on the queue's stopwatch.
  /// - Returns: What to do with the task.
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
        // The longer the current suspect takes, the longer this task is postponed.
        let delay = max(now - current.since, Self.delays.lowerBound)
        return .postpone(min(delay, Self.delays.upperBound))
      }
      state.current = (record.id, now)
      return .attempt
    }
  }

  /// Records that the attempt of a task has ended.
  func endAttempt(of id: TaskID) {
    state.withLock { if $0.current?.id == id { $0.current = nil } }
  }
}
