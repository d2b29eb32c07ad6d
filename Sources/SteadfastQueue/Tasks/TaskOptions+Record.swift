#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What the options make of a new task, and when they make no sense.
extension TaskOptions {
  /// Throws if the options make no sense for any task.
  ///
  /// - Parameter path: the text to write before the name of an option.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` that
  ///   names the option.
  package func check(path: String) throws(TaskQueueError) {
    guard let choices = choices.present else { return }
    if let delay = choices.delay {
      guard choices.availableDate == nil else {
        throw TaskQueueError(
          .invalidArgument,
          "\(path)delay and \(path)availableDate are both given; give one of them"
        )
      }
      try TaskQueueError.check(delay: delay, "\(path)delay")
    }
    try TaskQueueError.check(delay: choices.uniqueFor, "\(path)uniqueFor")
    try TaskQueueError.check(delay: choices.maxDelay, "\(path)maxDelay")
    if let delay = choices.delay, let maxDelay = choices.maxDelay, delay > maxDelay {
      throw TaskQueueError(
        .invalidArgument,
        "\(path)delay (\(delay)) is longer than \(path)maxDelay (\(maxDelay))"
      )
    }
    try TaskQueueError.check(storable: choices.availableDate, "\(path)availableDate")
    if let limit = choices.maxRetries { try TaskQueueError.check(limit, "\(path)maxRetries") }
    try TaskQueueError.check(storable: choices.timeLimit, "\(path)timeLimit")
    try TaskQueueError.check(timeLimit: choices.timeLimit, "\(path)timeLimit")
    try TaskQueueError.check(storable: choices.expiryDate, "\(path)expiryDate")
    try TaskQueueError.check(choices.tags, "\(path)tags")
    try TaskQueueError.check(key: choices.orderKey, "\(path)inOrder")
    try TaskQueueError.check(choices.conditions, "\(path)requires")
    try TaskQueueError.check(dependencies: choices.dependencies, "\(path)after")
    if !choices.dependencies.isEmpty, choices.onDuplicate == .replace {
      throw TaskQueueError(
        .invalidArgument,
        "\(path)after is given with \(path)onDuplicate: .replace: a task that waits for others "
          + "can't replace one with the same unique key"
      )
    }
  }

  /// Makes the new task, once all options that are chosen elsewhere are filled in.
  ///
  /// - Throws: a ``TaskQueueError`` that names the option that makes no sense.
  func record(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    uniqueKey: String?,
    prohibitsBackoff: Bool,
    follower: TaskID? = nil,
    now: Date
  ) throws(TaskQueueError) -> TaskRecord {
    try check(name: name)
    try TaskQueueError.check(key: uniqueKey, "uniqueKey")
    try check(path: "")
    let record =
      isEmpty && follower == nil
      ? TaskRecord(
        id: id,
        name: name,
        payload: payload,
        usesBackoff: !prohibitsBackoff,
        uniqueKey: uniqueKey,
        now: now
      )
      : chosenRecord(id, name, payload, uniqueKey, prohibitsBackoff, follower, now)
    // The store checks the rest. The dates are within their bounds by now.
    try record.checkReadable()
    try check(isInTime: record)
    return record
  }

  private func chosenRecord(
    _ id: TaskID,
    _ name: String,
    _ payload: StoredPayload,
    _ uniqueKey: String?,
    _ prohibitsBackoff: Bool,
    _ follower: TaskID?,
    _ now: Date
  ) -> TaskRecord {
    let chosen = availableDate?.storable
    return TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority ?? .normal,
      createdDate: now,
      maxRetries: maxRetries ?? 10,
      usesBackoff: !prohibitsBackoff && usesBackoff ?? true,
      uniqueKey: uniqueKey,
      uniqueUntil: uniqueKey == nil ? nil : uniqueFor.map { now.storable(after: $0) },
      latestDate: uniqueKey == nil ? nil : maxDelay.map { now.storable(after: $0) },
      orderKey: inOrder,
      holdsOrder: inOrder != nil && holdsOrder ?? false,
      conditions: requires,
      dependencies: dependencies(follower),
      tags: tags,
      timeLimit: timeLimit,
      expiryDate: expiryDate?.storable,
      availableDate: chosen ?? delay.map { now.storable(after: $0) } ?? now,
      // A date that has come means now.
      countedFrom: chosen.map { $0 > now } ?? false ? nil : now
    )
  }

  private func check(isInTime record: TaskRecord) throws(TaskQueueError) {
    guard let expiryDate, record.availableDate >= expiryDate else { return }
    throw TaskQueueError(
      .invalidArgument,
      "expiryDate (\(expiryDate)) is not after availableDate (\(record.availableDate)): "
        + "the task could never be performed"
    )
  }

  private func check(name: String) throws(TaskQueueError) {
    guard name.isEmpty else { return }
    throw TaskQueueError(.invalidArgument, "the name of a task is empty; give it a name")
  }

  private func dependencies(_ follower: TaskID?) -> TaskDependencies? {
    guard follower != nil || !after.isEmpty || when != nil else { return nil }
    return TaskDependencies(on: after, rule: when ?? .allSucceeded, follower: follower)
  }
}
