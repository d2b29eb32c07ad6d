#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskChange {
  /// Returns whether a change that is stale was stored when it was sent before.
  ///
  /// - Parameters:
  ///   - record: the task as the store has it now; `nil` if it is gone.
  ///   - isAlone: whether no other queue can have changed the task since then.
  /// - Returns: Whether the task is as the change leaves it.
  func wasStored(leaving record: TaskRecord?, isAlone: Bool) -> Bool {
    guard let record else {
      return switch self {
      // A task that is retained may have been pruned already.
      case .succeed, .abandon, .cancel, .remove: isAlone
      default: false
      }
    }
    return switch self {
    case .succeed(_, let date, _): record.hasEnded(.succeeded, at: date)
    case .abandon(_, let failure, _): record.hasEnded(.abandoned, at: failure.date)
    case .cancel(_, let date, _): record.hasEnded(.cancelled, at: date)
    case .retry(_, let date, let count, _, _):
      record.retryCount == count && record.availableDate.isStored(as: date)
    case .restart(_, let date, _), .reschedule(_, let date, _):
      record.availableDate.isStored(as: date)
    case .suspend(_, let date, _, _):
      record.state == .suspended && record.availableDate.isStored(as: date)
        // It woke at once, or has woken since.
        || record.state == .waiting && record.availableDate.isStored(as: record.createdDate)
    case .park: record.state == .parked
    case .pause: record.state == .paused
    case .release, .resume: record.state == .waiting
    // The rest is never stale, or is not if it is sent again.
    default: false
    }
  }
}

extension TaskRecord {
  fileprivate func hasEnded(_ state: TaskState, at date: Date) -> Bool {
    self.state == state && (finishedDate?.isStored(as: date) ?? false)
  }
}
