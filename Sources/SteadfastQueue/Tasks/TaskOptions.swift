#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is chosen for a task beside its payload and key.
struct TaskOptions: Sendable {
  var availableDate: Date?
  var maxRetries: RetryLimit
  var usesBackoff: Bool
  var priority: TaskQueue.Priority

  func validate() throws(TaskQueueError) {
    if case .atMost(let limit) = maxRetries, limit < 0 {
      throw TaskQueueError(
        .invalidArgument,
        "maxRetries is \(limit); give 0 or more, or .alwaysRetry for no limit"
      )
    }
    if let date = availableDate, !date.timeIntervalSince1970.isFinite {
      throw TaskQueueError(
        .invalidArgument,
        "availableDate is \(date.timeIntervalSince1970); give a finite date"
      )
    }
  }
}
