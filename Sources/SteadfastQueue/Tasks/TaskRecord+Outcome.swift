extension TaskRecord {
  /// How the task ended; `nil` if it has not.
  var outcome: TaskOutcome? {
    switch state {
    case .waiting, .running, .parked, .paused: nil
    case .succeeded: .succeeded
    case .abandoned: .abandoned(reason: lastError ?? "")
    case .cancelled: .cancelled
    }
  }
}
