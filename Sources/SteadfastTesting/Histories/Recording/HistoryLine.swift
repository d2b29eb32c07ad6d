package import SteadfastQueue
import Synchronization
import SystemC
public import SystemFoundation

/// A line of a history: a call of a process to its store, a response, or an observation.
package struct HistoryLine: Sendable, Codable {
  /// The microseconds since 1970, by the recorder's clock.
  package var date: Int64
  package var process: String
  package var event: HistoryEvent

  package init(date: Int64, process: String, event: HistoryEvent) {
    self.date = date
    self.process = process
    self.event = event
  }
}

/// A call of a process to its store, a response, or an observation.
///
/// Each process numbers its calls. If a call has no response, its outcome is unknown: the process
/// was killed, or still waits.
package enum HistoryEvent: Sendable, Codable {
  /// The process is about to open the store.
  case opening
  /// The process requests changes.
  case asked(call: Int, changes: [HistoryChange])
  /// The process claims tasks for a number of seconds.
  case claiming(call: Int, seconds: Double?)
  /// The changes have these outcomes.
  case answered(call: Int, outcomes: [HistoryOutcome])
  /// The call has claimed these tasks.
  case granted(call: Int, tasks: [HistoryGrant])
  /// The call failed, and has changed nothing.
  case refused(call: Int, reason: String)
  /// The call failed, but its changes may have been made.
  case unanswered(call: Int, reason: String)
  case attemptBegan(attempt: Int, task: TaskID, lease: UInt64?)
  case attemptEnded(attempt: Int)
  /// From here on, the test causes no more faults.
  case faultsEnded
  /// The tasks in the store.
  case remaining(tasks: [HistoryTask])
}

/// A change that a process requests.
package struct HistoryChange: Sendable, Codable {
  package enum Kind: String, Sendable, Codable {
    case insert, succeed, retry, abandon, release, park, unpark, cancel, pause, resume, restart
    case reschedule, update, remove, extend, command, prune, rebase, remember, suspend, complete
    case setValue, other
  }

  package var kind: Kind
  package var task: TaskID?
  package var lease: UInt64?
  /// The number of seconds by which a claim is extended.
  package var seconds: Double?
  /// The number of failed attempts that a retry stores.
  package var retryCount: Int?
  /// The task that an insertion adds.
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

/// The recorded properties of a task.
package struct HistoryTask: Sendable, Codable {
  package var id: TaskID
  package var state: String?
  package var queue: String?
  package var orderKey: String?
  package var follower: TaskID?
  /// The dependencies: the tasks that this task waits for.
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
    case done, stale, commanded, replaced, superseded, duplicate, identityTaken, unmetDependency
    case batchRefused, valueDiffers, other
  }

  package var kind: Kind
  /// The tasks to which the change cascaded, or the task that the outcome names.
  package var tasks: [TaskID]?

  package init(_ kind: Kind, tasks: [TaskID]? = nil) {
    self.kind = kind
    self.tasks = tasks
  }
}

/// A task that a claim returned, with its lease and its counts.
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

extension HistoryChange {
  init(recording change: TaskChange) {
    switch change {
    case .insert(let record, _):
      self.init(.insert, task: record.id, new: HistoryTask(recording: record, state: nil))
    case .move(let target, let move):
      self.init(Kind(rawValue: move.kind.rawValue) ?? .other, target, retryCount: move.retryCount)
    case .end(let target, let end):
      switch end.state {
      case .succeeded: self.init(.succeed, target)
      case .abandoned: self.init(.abandon, target)
      default: self.init(.cancel, target)
      }
    case .extend(let lease, let duration):
      self.init(.extend, .claimed(lease), seconds: duration / .seconds(1))
    case .command(let id, _, _): self.init(.command, task: id)
    case .memory(.remember(let lease, _, _)): self.init(.remember, .claimed(lease))
    case .memory(.suspend(let lease, _, _, _)): self.init(.suspend, .claimed(lease))
    case .memory(.complete(let id, _, _)): self.init(.complete, task: id)
    case .update(let id, _): self.init(.update, task: id)
    case .remove(let id): self.init(.remove, task: id)
    case .broad(.unpark): self.init(.unpark)
    case .broad(.prune): self.init(.prune)
    case .broad(.rebase): self.init(.rebase)
    case .setValue: self.init(.setValue)
    @unknown default: self.init(.other)
    }
  }

  private init(
    _ kind: Kind,
    _ target: TaskTarget,
    seconds: Double? = nil,
    retryCount: Int? = nil
  ) {
    let lease: UInt64? = if case .claimed(let lease) = target { lease.token } else { nil }
    self.init(kind, task: target.id, lease: lease, seconds: seconds, retryCount: retryCount)
  }
}

extension HistoryTask {
  /// Records a task, omitting properties that few tasks have.
  init(recording record: TaskRecord, state: TaskState?) {
    let dependencies = record.dependencies
    self.init(
      id: record.id,
      state: state?.rawValue,
      queue: record.queue.isEmpty ? nil : record.queue,
      orderKey: record.orderKey,
      follower: dependencies.follower,
      after: dependencies.tasks.isEmpty ? nil : dependencies.tasks.sorted()
    )
  }
}

extension HistoryOutcome {
  init(recording outcome: ChangeOutcome) {
    switch outcome {
    case .done: self.init(.done)
    case .doneWithConsequences(let consequences):
      self.init(.done, tasks: consequences.tasks.isEmpty ? nil : consequences.tasks)
    case .replaced(let id): self.init(.replaced, tasks: [id])
    case .superseded(let id): self.init(.superseded, tasks: [id])
    case .duplicate(let id): self.init(.duplicate, tasks: [id])
    case .unmetDependency(let id): self.init(.unmetDependency, tasks: [id])
    case .identityTaken: self.init(.identityTaken)
    case .stale: self.init(.stale)
    case .commanded: self.init(.commanded)
    case .batchRefused: self.init(.batchRefused)
    case .valueDiffers: self.init(.valueDiffers)
    @unknown default: self.init(.other)
    }
  }
}

extension HistoryGrant {
  init(recording task: ClaimedTask) {
    self.init(
      task: task.lease.id,
      lease: task.lease.token,
      name: task.record.name,
      retryCount: task.record.retryCount,
      interruptionCount: task.record.interruptionCount
    )
  }
}

/// A new file to which lines are appended.
///
/// Before ``append(_:)`` returns, it passes the line to the system, so that the line is in the file
/// even if the process crashes. After a write has failed, no more lines are written, because the
/// last line may be incomplete.
final class HistoryFile: Sendable {
  private let path: String
  private let descriptor: Int32
  private let isBroken = Mutex(false)

  init(_ path: String) throws(HistoryError) {
    self.path = path
    descriptor = unsafe open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else {
      throw HistoryError(
        "the history \(path) can't be created: \(SystemCallError.last("open")); "
          + "give each process a new file"
      )
    }
  }

  deinit { _ = close(descriptor) }

  func append(_ line: HistoryLine) throws {
    var bytes = try StableJSON.encode(line)
    bytes.append(UInt8(ascii: "\n"))
    try isBroken.withLock { isBroken in
      guard !isBroken else {
        throw HistoryError(
          "the history \(path) is incomplete, because an earlier line could not be written; "
            + "repeat the run with a new file"
        )
      }
      // Stays true if the line can't be written completely.
      isBroken = true
      var written = 0
      while written < bytes.count {
        // Safe, because the range stays within the bytes.
        let count = unsafe bytes.withUnsafeBytes { bytes in
          unsafe write(descriptor, bytes.baseAddress?.advanced(by: written), bytes.count - written)
        }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else {
          let error = count < 0 ? SystemCallError.last("write") : .nothingWritten
          throw HistoryError("the history \(path) can't be written: \(error)")
        }
        written += count
      }
      isBroken = false
    }
  }
}

/// A history that can't be written or read.
public struct HistoryError: Error, Sendable, CustomStringConvertible {
  /// What is wrong, which file is affected, and what to do about it.
  public let description: String

  init(_ description: String) { self.description = description }
}

extension HistoryError: LocalizedError {
  /// What is wrong.
  public var errorDescription: String? { description }
}
