@testable import SteadfastQueue

/// What a handler does during one attempt in the model check.
struct Act: Codable, Hashable, Sendable {
  enum End: Codable, Hashable, Sendable {
    case succeed, fail, abandon
    case snooze(seconds: Int)
    case retryAfter(seconds: Int)
  }

  var end: End
  /// The seconds for which the handler works, on the virtual clock.
  var seconds = 0
  /// Whether the handler works for all of that time even if it is cancelled.
  var ignoresCancellation = false
  var reportsProgress = false
  /// Whether the handler enqueues another task before it ends.
  var enqueues = false
  /// Whether the handler adds a task to its batch before it ends.
  var joinsBatch = false
  /// The number of steps that the handler performs.
  var steps = 0
  var savesCheckpoints = false
  /// The seconds for which the task sleeps after the steps.
  var nap: Int?
  /// The completion, called a reply, that the task waits for after the sleep.
  var reply: Reply?
  /// Whether the handler returns instead of throwing the error that suspends the task.
  var hidesSuspension = false

  /// How long a task waits for a reply.
  enum Reply: Codable, Hashable, Sendable {
    case whenever
    case within(seconds: Int)
  }
}

extension Act: CustomStringConvertible {
  var description: String {
    var text = "\(end)"
    if seconds > 0 { text += " after \(seconds) s" }
    if ignoresCancellation { text += ", deaf" }
    if reportsProgress { text += ", reporting" }
    if enqueues { text += ", enqueueing" }
    if joinsBatch { text += ", adding to its batch" }
    if steps > 0 { text += ", \(steps) steps" }
    if savesCheckpoints { text += ", saving" }
    if let nap { text += ", sleeping \(nap) s" }
    if let reply { text += ", awaiting a reply \(reply)" }
    if hidesSuspension { text += ", hiding its suspension" }
    return text
  }
}

/// The payload of a task of the model: its number, and an act for each attempt.
struct ModelWork: Codable, Hashable, Sendable {
  var number: Int
  /// The acts of the first attempts; all later attempts succeed.
  var acts: [Act]
}

/// A payload of the model.
///
/// Each conforming type has its own task name.
protocol ModelPayload: TaskPayload {
  var work: ModelWork { get }
  init(work: ModelWork)
}

/// A job without a limit on concurrency.
struct PlainJob: ModelPayload { var work: ModelWork }
/// A job whose tasks are performed one at a time.
struct LimitedJob: ModelPayload { var work: ModelWork }
/// A job that has no handler until the case registers one.
struct StrayJob: ModelPayload { var work: ModelWork }

extension TaskRecord {
  /// The contents of the task's payload, if the task belongs to the model.
  var modelWork: ModelWork? {
    switch name {
    case PlainJob.taskName: try? payload(as: PlainJob.self).work
    case LimitedJob.taskName: try? payload(as: LimitedJob.self).work
    case StrayJob.taskName: try? payload(as: StrayJob.self).work
    default: nil
    }
  }
}
