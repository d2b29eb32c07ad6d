extension TaskEvent: CustomStringConvertible {
  /// What happened, to which task, and why it failed; never its payload, unless the text of a
  /// handler's error shows it.
  public var description: String {
    switch self {
    case .enqueued(let task): "enqueued: \(task)"
    case .started(let task): "started: \(task)"
    case .progressed(let task, let fraction): "progressed to \(fraction): \(task)"
    case .failed(let task, let reason, let date, let timing):
      "failed, retry at \(date): \(task), \(timing): \(reason)"
    case .snoozed(let task, let date): "snoozed until \(date): \(task)"
    case .succeeded(let task, let timing): "succeeded: \(task), \(timing)"
    case .abandoned(let task, let reason, _): "abandoned: \(task): \(reason)"
    case .cancelled(let id): "cancelled: \(id)"
    case .paused(let id): "paused: \(id)"
    case .resumed(let id): "resumed: \(id)"
    case .restarted(let id): "restarted: \(id)"
    case .rescheduled(let id, let date): "rescheduled to \(date): \(id)"
    case .updated(let id): "updated: \(id)"
    case .released(let task): "released: \(task)"
    case .unhandled(let task, let reason): "unhandled: \(task): \(reason)"
    case .missed(let count): "missed: \(count) events"
    }
  }
}
