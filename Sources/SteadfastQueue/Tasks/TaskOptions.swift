#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is chosen for a task beside its payload and key.
struct TaskOptions: Sendable {
  var availableDate: Date?
  var maxRetries: RetryLimit?
  var usesBackoff: Bool?
  var priority: TaskQueue.Priority?
  var timeLimit: Duration?
  var expiryDate: Date?
  var tags: Set<String>

  /// The new task that was chosen.
  ///
  /// - Throws: a ``TaskQueueError`` that names the option that makes no sense.
  func record(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    uniqueKey: String?,
    configuration: TaskQueueConfiguration,
    now: Date
  ) throws(TaskQueueError) -> TaskRecord {
    let defaults = configuration.taskDefaults
    let record = TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority ?? defaults.priority,
      createdDate: now,
      maxRetries: maxRetries ?? defaults.maxRetries,
      usesBackoff: !configuration.prohibitsBackoff && (usesBackoff ?? defaults.usesBackoff),
      uniqueKey: uniqueKey,
      tags: tags,
      timeLimit: timeLimit ?? defaults.timeLimit,
      expiryDate: expiryDate?.storable,
      availableDate: availableDate?.storable ?? now
    )
    try record.checkForm()
    if let expiryDate, record.availableDate >= expiryDate {
      throw TaskQueueError(
        .invalidArgument,
        "expiryDate (\(expiryDate)) is not after availableDate (\(record.availableDate)): "
          + "the task could never be performed"
      )
    }
    return record
  }
}
