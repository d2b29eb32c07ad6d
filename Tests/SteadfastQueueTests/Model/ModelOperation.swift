import SteadfastRetry

@testable import SteadfastQueue

/// An operation in a case of the model check.
///
/// A task is given by an index among the tasks that are stored at this point, modulo their count.
/// So the operations remain valid if earlier ones are removed.
indirect enum ModelOperation: Sendable {
  enum Request: String, Sendable, CaseIterable {
    case cancel, pause, resume, restart, reschedule, update, remove
    /// A restart from the beginning, which clears the task's memory.
    case startOver
  }
  enum Name: String, Sendable, CaseIterable { case plain, limited, stray }

  struct NewTask: Sendable {
    var name = Name.plain
    var acts: [Act]
    var delay: Int?
    var maxRetries = RetryLimit.atMost(2)
    var usesBackoff = true
    var priority = 0
    var timeLimit: Int?
    var lifetime: Int?
    var tag: String?
    var key: String?
    var uniqueFor: Int?
    var maxDelay: Int?
    var order: String?
    var blocksOrderOnFailure = false
    var requiresCondition = false
    var policy = UniquePolicy.keep
    var count = 1
    /// The indices of the tasks that the new task depends on.
    var after: [Int] = []
    var rule = DependencyRule.allSucceeded
    /// Whether the new tasks are a batch with a follower.
    var hasFollower = false
    /// Whether the task is added to the second queue, if there is one.
    var isAside = false
  }

  case enqueue(NewTask)
  case ask(Request, task: Int)
  case askTagged(Request, tag: String)
  case outcome(task: Int)
  /// Completes the wait of a task.
  case complete(task: Int)
  case pauseQueue, resumeQueue
  /// Changes the queue's stored pause.
  case pauseStore, resumeStore
  case setValue(Int)
  case setCondition(Bool)
  case run, runAvailable, cancelRun
  case shutDown(within: Int)
  /// Ends the queue, and makes another queue on the same store.
  case restartQueue
  case registerStray
  case advance(seconds: Int)
  case step(seconds: Int)
  /// Waits until nothing more can happen at this instant, and checks everything.
  case settle
}

extension ModelOperation: CustomStringConvertible {
  var description: String {
    switch self {
    case .enqueue(let task): "enqueue \(task)"
    case .ask(let request, let task): "\(request) task \(task)"
    case .askTagged(let request, let tag): "\(request) all tagged \(tag)"
    case .outcome(let task): "ask for the outcome of task \(task)"
    case .complete(let task): "reply to task \(task)"
    case .pauseQueue: "pause the queue"
    case .resumeQueue: "resume the queue"
    case .pauseStore: "pause the queues on the store"
    case .resumeStore: "resume the queues on the store"
    case .setValue(let number): "set a value to \(number)"
    case .setCondition(let holds): "the condition \(holds ? "holds" : "does not hold")"
    case .run: "run"
    case .runAvailable: "run what is available"
    case .cancelRun: "cancel the run"
    case .shutDown(let limit): "shut down within \(limit) s"
    case .restartQueue: "make a new queue on the store"
    case .registerStray: "register the handler of stray"
    case .advance(let seconds): "advance by \(seconds) s"
    case .step(let seconds): "step the date by \(seconds) s"
    case .settle: "settle"
    }
  }
}

extension ModelOperation.NewTask: CustomStringConvertible {
  var description: String {
    var text = "\(count > 1 ? "\(count) × " : "")\(name): \(acts)"
    if let delay { text += ", in \(delay) s" }
    text += ", \(maxRetries)"
    if !usesBackoff { text += ", no backoff" }
    if priority != 0 { text += ", priority \(priority)" }
    if let timeLimit { text += ", limit \(timeLimit) s" }
    if let lifetime { text += ", expires in \(lifetime) s" }
    if let tag { text += ", tag \(tag)" }
    if let key { text += ", key \(key) (\(policy))" }
    if let uniqueFor { text += ", unique for \(uniqueFor) s" }
    if let maxDelay { text += ", delayed by \(maxDelay) s at most" }
    if let order {
      text += ", in order of \(order)\(blocksOrderOnFailure ? ", which it blocks on failure" : "")"
    }
    if requiresCondition { text += ", requires the condition" }
    if isAside { text += ", on the side" }
    if !after.isEmpty { text += ", after \(after) (\(rule))" }
    if hasFollower { text += ", with a follower (\(rule))" }
    return text
  }
}
