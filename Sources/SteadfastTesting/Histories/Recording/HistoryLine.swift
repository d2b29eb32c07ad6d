package import SteadfastQueue

/// A line of a history: something that a process asked, was answered, or saw.
package struct HistoryLine: Sendable, Codable {
  /// Microseconds since 1970 by the recorder's clock.
  package var date: Int64
  package var process: String
  package var event: HistoryEvent

  package init(date: Int64, process: String, event: HistoryEvent) {
    self.date = date
    self.process = process
    self.event = event
  }
}

/// What a process asked of its store, was answered, or saw.
///
/// A call has a number, which is the process's own. A call without an answer is one whose outcome
/// is unknown: its process was killed, or still waits.
package enum HistoryEvent: Sendable, Codable {
  /// The process is about to open the store.
  case opening
  /// It asks for changes.
  case asked(call: Int, changes: [HistoryChange])
  /// It asks for tasks, and claims them for a number of seconds.
  case claiming(call: Int, seconds: Double?)
  /// The changes have these outcomes.
  case answered(call: Int, outcomes: [HistoryOutcome])
  /// These tasks are handed out.
  case granted(call: Int, tasks: [HistoryGrant])
  /// The call has changed nothing.
  case refused(call: Int, reason: String)
  /// The call may have been carried out.
  case unanswered(call: Int, reason: String)
  case attemptBegan(attempt: Int, task: TaskID, lease: UInt64?)
  case attemptEnded(attempt: Int)
  /// From here on, nothing is done to the processes and the store.
  case faultsEnded
  /// What is in the store.
  case remaining(tasks: [HistoryTask])
}

/// A change that a process asks for.
package struct HistoryChange: Sendable, Codable {
  package enum Kind: String, Sendable, Codable {
    case insert, succeed, retry, abandon, release, park, unpark, cancel, pause, resume, restart
    case reschedule, update, remove, extend, prune, rebase, remember, suspend, complete, setValue
    case other
  }

  package var kind: Kind
  package var task: TaskID?
  package var lease: UInt64?
  /// For how many seconds a claim is extended.
  package var seconds: Double?
  /// The number of failed attempts that a retry stores.
  package var retryCount: Int?
  /// What an insertion adds.
  package var new: HistoryTask?

  package init(
    _ kind: Kind,
    task: TaskID? = nil,
    lease: UInt64? = nil,
    seconds: Double? = nil,
    retryCount: Int? = nil,
    new: HistoryTask? = nil
  ) {
    self.kind = kind
    self.task = task
    self.lease = lease
    self.seconds = seconds
    self.retryCount = retryCount
    self.new = new
  }
}

/// What a history knows of a task in a store.
package struct HistoryTask: Sendable, Codable {
  package var id: TaskID
  package var state: String?
  package var queue: String?
  package var orderKey: String?
  package var follower: TaskID?
  /// The tasks that it waits for.
  package var after: [TaskID]?

  package init(
    id: TaskID,
    state: String? = nil,
    queue: String? = nil,
    orderKey: String? = nil,
    follower: TaskID? = nil,
    after: [TaskID]? = nil
  ) {
    self.id = id
    self.state = state
    self.queue = queue
    self.orderKey = orderKey
    self.follower = follower
    self.after = after
  }
}

/// The outcome of a change.
package struct HistoryOutcome: Sendable, Codable {
  package enum Kind: String, Sendable, Codable {
    case done, stale, replaced, superseded, duplicate, identityTaken, unmetDependency
    case batchRefused, valueDiffers, other
  }

  package var kind: Kind
  /// The tasks that ended, were restarted or removed along with it; or the one that took its place.
  package var tasks: [TaskID]?

  package init(_ kind: Kind, tasks: [TaskID]? = nil) {
    self.kind = kind
    self.tasks = tasks
  }
}

/// A task that was handed out.
package struct HistoryGrant: Sendable, Codable {
  package var task: TaskID
  package var lease: UInt64
  package var name: String
  package var retryCount: Int
  package var interruptionCount: Int

  package init(
    task: TaskID,
    lease: UInt64,
    name: String = "",
    retryCount: Int = 0,
    interruptionCount: Int = 0
  ) {
    self.task = task
    self.lease = lease
    self.name = name
    self.retryCount = retryCount
    self.interruptionCount = interruptionCount
  }
}
