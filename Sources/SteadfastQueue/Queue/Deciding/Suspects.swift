import Synchronization
import SystemFoundation

/// Decides about tasks that were under way when their process ended, and may be the reason for it.
///
/// A task may also have been beside the one that ends the process, or the program may end whatever
/// it performs, as after a bad deployment. So a task that was interrupted twice is a *suspect*, and
/// a queue performs one suspect at a time: none is interrupted by another one. And a process that
/// abandons a task has performed another one before, or has lived for a while without it.
///
/// The queues of a group share this object, as they are in one process.
final class Suspects: Sendable {
  enum Ruling: Equatable {
    /// Perform it; ``Suspects/ended(_:)`` follows.
    case attempt
    /// Try again after the delay.
    case postpone(Duration)
    case abandon
  }

  private struct State {
    /// The suspect that is performed, and since when.
    var current: (id: TaskID, since: Duration)?
    /// When the process has first met a task that was interrupted too often.
    var probationBegin: Duration?
  }

  static let interruptionCount = 2
  /// How long a process that has performed nothing lives before it abandons a task.
  static let probation = Duration.seconds(10)
  private static let delays = Duration.milliseconds(100)...Duration.seconds(60)

  private let state = Mutex(State())

  /// Decides about a task that was interrupted.
  ///
  /// - Parameters:
  ///   - record: The task.
  ///   - isTooOften: Whether it was interrupted more often than the configuration allows.
  ///   - isProven: Whether the process has performed other tasks, or may not live for long.
  ///   - now: The time on the queue's stopwatch.
  /// - Returns: What to do with it.
  func ruling(
    on record: TaskRecord,
    isTooOften: Bool,
    isProven: Bool,
    at now: Duration
  ) -> Ruling {
    state.withLock { state in
      if isTooOften {
        let begin = state.probationBegin ?? now
        state.probationBegin = begin
        let left = begin + Self.probation - now
        return isProven || left <= .zero ? .abandon : .postpone(left)
      }
      guard record.interruptionCount >= Self.interruptionCount else { return .attempt }
      if let current = state.current {
        // The longer the other one takes, the less often this one looks again.
        let delay = max(now - current.since, Self.delays.lowerBound)
        return .postpone(min(delay, Self.delays.upperBound))
      }
      state.current = (record.id, now)
      return .attempt
    }
  }

  /// The attempt of a task that was interrupted has ended.
  func ended(_ id: TaskID) {
    state.withLock { if $0.current?.id == id { $0.current = nil } }
  }
}
