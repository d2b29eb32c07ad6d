extension QueueStatistics: CustomStringConvertible {
  /// The numbers in a line, as in `2 waiting, 1 running; 10 attempts: 8 succeeded, …`.
  public var description: String {
    let states = TaskState.allCases.compactMap { state in
      counts[state].map { "\($0) \(state)" }
    }
    let held = states.isEmpty ? "no tasks" : states.joined(separator: ", ")
    return "\(held); \(attempts) attempts: \(succeeded) succeeded, \(failed) failed, "
      + "\(abandoned) abandoned, \(snoozed) snoozed; waited \(waitTime), ran \(runTime)"
  }
}

extension QueueStatistics.Times: CustomStringConvertible {
  /// The mean and the longest.
  public var description: String { "\(mean) on average, \(longest) at most" }
}
