#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskRecord {
  /// Throws if not every store can hold this as a new task, as ``TaskChange/checkForm()`` does.
  func checkForm() throws(TaskQueueError) {
    try checkReadable()
    try checkTexts()
    try checkDates()
  }

  /// Throws if the task makes no sense, even in a file that an earlier version has written.
  func checkReadable() throws(TaskQueueError) {
    guard state != .running else {
      throw TaskQueueError(.invalidArgument, "the new task \(id) is running; a new task waits")
    }
    try TaskQueueError.check(createdDate, "createdDate")
    try TaskQueueError.check(availableDate, "availableDate")
    try TaskQueueError.check(finishedDate, "finishedDate")
    try TaskQueueError.check(maxRetries, "maxRetries")
    if hasFailureState { try checkFailureState() }
    if hasExtras {
      try TaskQueueError.check(expiryDate, "expiryDate")
      try TaskQueueError.check(timeLimit: timeLimit, "timeLimit")
      try TaskQueueError.check(uniqueUntil, "uniqueUntil")
      try TaskQueueError.check(latestDate, "latestDate")
      try TaskQueueError.check(key: orderKey, "orderKey")
      try TaskQueueError.check(queue: queue)
      try TaskQueueError.check(conditions, "conditions")
      if let dependencies = presentDependencies { try check(dependencies) }
    }
  }

  private func check(_ dependencies: TaskDependencies) throws(TaskQueueError) {
    try TaskQueueError.check(dependencies: dependencies.tasks, "after")
    guard !dependencies.tasks.contains(id), dependencies.follower != id else {
      throw TaskQueueError(.invalidArgument, "the task \(id) waits for itself")
    }
    guard dependencies.batch?.isPossible ?? true else {
      throw TaskQueueError(
        .invalidArgument,
        "the progress of the batch before the task \(id) is impossible"
      )
    }
  }

  private func checkFailureState() throws(TaskQueueError) {
    try TaskQueueError.check(failedDate, "failedDate")
    try TaskQueueError.check(explicitOrigin, "countedFrom")
    for failure in earlierFailures {
      try TaskQueueError.check(failure.date, "the date of an earlier failure")
    }
    try TaskQueueError.check(retryCount, "retryCount")
    try TaskQueueError.check(interruptionCount, "interruptionCount")
  }
}
