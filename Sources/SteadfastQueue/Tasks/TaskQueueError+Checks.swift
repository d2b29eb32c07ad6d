#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Checks for values that no store can keep, and that make no sense to a queue.
///
/// Each check throws an error that names the value.
extension TaskQueueError {
  static func check(_ date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let seconds = date?.timeIntervalSince1970, !seconds.isFinite else { return }
    throw TaskQueueError(.invalidArgument, "\(name()) is \(seconds); give a finite date")
  }

  static func check(_ limit: RetryLimit, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard case .atMost(let count) = limit, count < 0 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(count); give 0 or more, or .alwaysRetry for no limit"
    )
  }

  static func check(timeLimit: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError)
  {
    // A time limit longer than the age of the universe is more than can be written.
    guard let timeLimit, timeLimit <= .zero || timeLimit > .seconds(Int64(1) << 60) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(timeLimit); give more than zero, and at most 100000000000 seconds, or none for "
        + "any time"
    )
  }

  static func check(delay: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    if let delay, delay < .zero {
      throw TaskQueueError(.invalidArgument, "\(name()) is \(delay); give zero or more")
    }
    try check(storable: delay, name())
  }

  static func check(_ count: Int?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let count, count < 0 else { return }
    throw TaskQueueError(.invalidArgument, "\(name()) is \(count); give 0 or more")
  }

  static func check(key: String?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard key == "" else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is empty, and would be one key for unrelated tasks; give nil for no key"
    )
  }

  /// The greatest length of a queue's name, in bytes of UTF-8.
  private static var maxQueueNameLength: Int { 255 }

  static func check(queue name: String) throws(TaskQueueError) {
    guard name.utf8.count > maxQueueNameLength || name.utf8.contains(where: { $0 < 0x20 }) else {
      return
    }
    throw TaskQueueError(
      .invalidArgument,
      "the name of a queue has \(name.utf8.count) bytes, or a control character; give it at most "
        + "\(maxQueueNameLength), and none of those"
    )
  }

  static func check(dependencies: Set<TaskID>, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    guard dependencies.count > TaskDependencies.mostTasks else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) has \(dependencies.count) tasks; give at most \(TaskDependencies.mostTasks), or "
        + "enqueue a batch with a task that follows it"
    )
  }

  static func check(_ conditions: Set<TaskCondition>, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    if conditions.contains("") { throw emptyMember(of: name()) }
  }

  static func check(_ tags: Set<String>, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    try check(texts: tags, name())
    if tags.contains("") { throw emptyMember(of: name()) }
  }

  private static func emptyMember(of name: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, "one of \(name) is empty; leave it out")
  }
}
