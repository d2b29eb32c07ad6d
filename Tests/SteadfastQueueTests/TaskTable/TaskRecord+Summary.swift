import Foundation

@testable import SteadfastQueue

extension TaskRecord {
  /// All stored properties of the task, for comparison.
  var summary: String {
    """
    \(id) \(queue) \(name) \(priority.rawValue) \(state) \
    \((try? payload.bytes()) ?? []) \(maxRetries) \(usesBackoff) \
    \(timeLimit, default: "-") \(expiryDate?.timeIntervalSince1970 ?? 0) \
    \(tags.sorted()) \(metadata.sorted { $0.key < $1.key }) \
    \(availableDate.timeIntervalSince1970) \(retryCount) \
    \(interruptionCount) \(uniqueKey ?? "-") \(lastError ?? "-") \
    \(failedDate?.timeIntervalSince1970 ?? 0) \(failedAttempt?.text ?? "-") \
    \(earlierFailures.map { "\($0.reason) \($0.date.timeIntervalSince1970) \($0.attempt?.text ?? "-")" }) \
    \(finishedDate?.timeIntervalSince1970 ?? 0) \(isPostponed) \
    \(parkedVersion, default: "-") \(payload.version) \(memorySize) \
    \(keyRole, default: "-") \(uniqueUntil?.timeIntervalSince1970 ?? 0) \
    \(latestDate?.timeIntervalSince1970 ?? 0) \(orderKey ?? "-") \
    \(blocksOrderOnFailure) \(conditions.sorted()) \(dependencies.tasks.sorted()) \
    \(dependencies.rule) \(dependencies.follower, default: "-") \
    \(dependencies.failed.sorted { $0.key < $1.key }) \
    \(dependencies.cause, default: "-") \(dependencies.batch, default: "-")
    """
  }
}
