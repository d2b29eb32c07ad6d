#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What makes no sense for a schedule, and the errors that say so.
extension TaskQueue {
  /// Returns the options of a schedule's tasks, filled in from the payload's type and the queue.
  nonisolated func recurringOptions<Payload: TaskPayload>(
    of _: Payload.Type,
    _ options: TaskOptions
  ) throws(TaskQueueError) -> TaskOptions {
    try options.checkForSchedule()
    var chosen = options
    chosen.fill(from: Payload.options)
    chosen.fill(from: configuration.taskDefaults)
    let recurring = chosen.recurring
    try recurring.check(path: "")
    return recurring
  }

  static func check(schedule name: String) throws(TaskQueueError) {
    guard name.isEmpty || name.utf8.count > 255 || name.utf8.contains(where: { $0 < 0x20 }) else {
      return
    }
    throw TaskQueueError(
      .invalidArgument,
      "the name of a schedule has \(name.utf8.count) bytes, or a control character; give it 1 to "
        + "255, and none of those"
    )
  }

  /// Throws if a schedule is so large that a later step of it might not fit in a value.
  ///
  /// A step adds the ID of an occurrence, a count of missed dates, or why the schedule is parked,
  /// and a seal adds what it needs.
  static func check(_ schedule: StoredSchedule) throws {
    let count = try schedule.bytes.count
    guard count > 64_500 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the schedule '\(schedule.name)' has \(count) bytes with its payload in JSON; at most 64,500 fit"
    )
  }

  static func keyIsTaken(_ name: String, by other: String) -> TaskQueueError {
    TaskQueueError(
      .nameTaken,
      "the schedule '\(name)' can't be told from the schedule '\(other)' in this store: both names "
        + "have the same 36-bit hash; give it another name"
    )
  }
}

extension TaskOptions {
  /// Throws if a schedule can't do what an option asks.
  fileprivate func checkForSchedule() throws(TaskQueueError) {
    let names = [
      availableDate == nil ? nil : "availableDate",
      delay == nil ? nil : "delay",
      expiryDate == nil ? nil : "expiryDate",
      onDuplicate == nil ? nil : "onDuplicate",
      uniqueFor == nil ? nil : "uniqueFor",
      maxDelay == nil ? nil : "maxDelay",
      after.isEmpty ? nil : "after",
      when == nil ? nil : "when",
    ]
    guard let name = names.compactMap(\.self).first else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the option '\(name)' makes no sense for a schedule, whose tasks have the dates of its rule and "
        + "no unique key; leave it out"
    )
  }

  /// The options that count for the tasks of a schedule.
  fileprivate var recurring: TaskOptions {
    TaskOptions(
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      timeLimit: timeLimit,
      tags: tags,
      inOrder: inOrder,
      holdsOrder: holdsOrder,
      requires: requires
    )
  }
}
