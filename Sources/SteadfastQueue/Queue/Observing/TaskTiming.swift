/// How long a task waited for an attempt, and how long the attempt took.
public struct TaskTiming: Sendable, Hashable {
  /// How long the task was available before the attempt began, by the dates of the clock.
  ///
  /// So long all workers were busy, or the queue did not run.
  public let waited: Duration
  /// How long the handler took, by the clock's instants.
  public let ran: Duration

  static let zero = TaskTiming(waited: .zero, ran: .zero)
}

extension TaskTiming: CustomStringConvertible {
  /// As in `waited 0.2 seconds, ran 1.5 seconds`.
  public var description: String { "waited \(waited), ran \(ran)" }
}
