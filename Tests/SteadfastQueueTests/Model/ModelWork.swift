@testable import SteadfastQueue

/// What a handler does at one attempt in the model check.
struct Act: Codable, Hashable, Sendable {
  enum End: Codable, Hashable, Sendable {
    case succeed, fail, abandon
    case snooze(seconds: Int)
    case retryAfter(seconds: Int)
  }

  var end: End
  /// How long it takes on the virtual clock.
  var seconds = 0
  /// It goes on for all that time even if it is cancelled.
  var ignoresCancellation = false
  var reportsProgress = false
  /// It enqueues another task before it ends.
  var enqueues = false
  /// It adds a task to its batch before it ends.
  var joinsBatch = false
  /// How many steps it performs.
  var steps = 0
  var savesCheckpoints = false
  /// How long the task sleeps after the steps.
  var nap: Int?
  /// The task waits for a reply after that.
  var reply: Reply?
  /// It returns although the task is to be suspended.
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

/// What a task of the model carries: its number, and what its handler does at each attempt.
struct ModelWork: Codable, Hashable, Sendable {
  var number: Int
  /// Whatever attempts come after these succeed.
  var acts: [Act]
}

/// A payload of the model; each type is a name of its own to the queue.
protocol ModelPayload: TaskPayload {
  var work: ModelWork { get }
  init(work: ModelWork)
}

/// Any number is performed at a time.
struct PlainJob: ModelPayload { var work: ModelWork }
/// One is performed at a time.
struct LimitedJob: ModelPayload { var work: ModelWork }
/// Has no handler until one is registered.
struct StrayJob: ModelPayload { var work: ModelWork }

extension TaskRecord {
  /// The work that the task carries, if it belongs to the model.
  var modelWork: ModelWork? {
    switch name {
    case PlainJob.taskName: try? payload(as: PlainJob.self).work
    case LimitedJob.taskName: try? payload(as: LimitedJob.self).work
    case StrayJob.taskName: try? payload(as: StrayJob.self).work
    default: nil
    }
  }
}
