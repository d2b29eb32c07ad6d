/// What ended an attempt: the change to keep, and the task that it concerns as it was then.
struct Settlement: Sendable {
  let change: TaskChange
  let record: TaskRecord

  /// How the task ended, if the change ends it.
  var outcome: TaskOutcome? {
    switch change {
    case .succeed: .succeeded
    case .abandon(_, let failure, _): .abandoned(reason: failure.reason)
    case .retry, .release, .park, .insert, .unpark, .prune, .rebase: nil
    }
  }

  /// What to tell observers once the change is kept.
  var event: TaskEvent? {
    switch change {
    case .succeed: .succeeded(record)
    case .abandon(_, let failure, _): .abandoned(record, reason: failure.reason)
    case .retry(_, let date, _, let failure?):
      .failed(record, reason: failure.reason, retryDate: date)
    case .retry(_, let date, _, nil): .snoozed(record, until: date)
    case .release: .released(record)
    case .park(_, let failure): .unhandled(record, reason: failure.reason)
    case .insert, .unpark, .prune, .rebase: nil
    }
  }
}
