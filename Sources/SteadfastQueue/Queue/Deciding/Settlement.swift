import SystemFoundation

/// The change that settles a task, and the task's record before the change.
///
/// It is a class because a settlement is large to copy, and is read in many places.
final class Settlement: Sendable {
  let change: TaskChange
  let record: TaskRecord
  /// The handler's return value.
  let value: (any Sendable)?
  /// How long the task waited, and how long its attempt took; `nil` if there was no attempt.
  let timing: TaskTiming?
  /// The handler that could not decode the payload, if the task is parked for that reason.
  let handler: AnyHandler?
  /// Whether an attempt had begun; `false` if the task was only claimed.
  let wasBegun: Bool
  /// Whether the attempt used the task's memory.
  let usedMemory: Bool

  init(
    change: TaskChange,
    record: TaskRecord,
    value: (any Sendable)? = nil,
    timing: TaskTiming? = nil,
    handler: AnyHandler? = nil,
    wasBegun: Bool = true,
    usedMemory: Bool = false
  ) {
    self.change = change
    self.record = record
    self.value = value
    self.timing = timing
    self.handler = handler
    self.wasBegun = wasBegun
    self.usedMemory = usedMemory
  }

  /// How the task ended, if the change ends it.
  var outcome: TaskOutcome? { change.end?.outcome }

  /// Whether another change to the task may be reported at the same time.
  ///
  /// This is possible if the task stays in the store. It is also possible if the task's memory can
  /// contain a token: a caller may complete the task's wait with the token just before the task
  /// ends.
  var mayRaceWithOtherReports: Bool {
    switch change {
    case .move, .update, .memory: true
    case .end(_, let end): end.retains || usedMemory || record.memorySize > 0
    default: false
    }
  }

  /// Whether the change ends the task and leaves it in the store.
  var retainsEndedTask: Bool { change.end?.retains ?? false }

  /// The event to post when the change is stored, if there is one.
  var event: TaskEvent? {
    switch change {
    case .move(_, let move): event(of: move)
    case .end(_, let end):
      switch end.outcome {
      case .succeeded: .succeeded(record, timing: timing ?? .zero)
      case .abandoned(let reason): .abandoned(record, reason: reason, timing: timing)
      case .cancelled: .cancelled(record.id)
      }
    case .memory(.suspend(_, let date, _, _)):
      .suspended(record, until: date < .distantFuture ? date : nil)
    case .memory(.complete(let id, _, _)): .completionArrived(id)
    case .update(let id, _): .updated(id)
    default: nil
    }
  }

  private func event(of move: TaskMove) -> TaskEvent? {
    let date = move.availableDate ?? record.availableDate
    return switch move.kind {
    case .retry:
      if let failure = move.failure {
        .failed(record, reason: failure.reason, retryDate: date, timing: timing ?? .zero)
      } else {
        .snoozed(record, until: date)
      }
    case .release: wasBegun ? .released(record) : nil
    case .park: .unhandled(record, reason: move.failure?.reason ?? "")
    case .pause: .paused(record.id)
    case .resume: .resumed(record.id)
    case .restart: .retried(record.id)
    case .reschedule: wasBegun ? .rescheduled(record.id, to: date) : nil
    }
  }
}

/// The settlements that are not stored yet.
///
/// Several settlements are stored as one batch. So no settlement may set a value: a store that
/// refuses the value refuses the whole batch, with the settlements of other attempts.
struct PendingResults: Sendable {
  private let capacity: Int
  /// The settlements that were added since the last ``takeWaiting()``.
  private var waiting: [Settlement] = []
  /// The settlements that are being stored.
  private var settling: [Settlement] = []
  /// Whether a worker waits for capacity, or until everything is stored.
  private var isHeldBack = false

  init(capacity: Int) { self.capacity = capacity }

  /// Whether there is nothing left to store.
  var isEmpty: Bool { settling.isEmpty && waiting.isEmpty }

  /// Whether a caller is storing settlements.
  var isStoring: Bool { !settling.isEmpty }

  /// All settlements that are not stored yet, starting with those that are being stored.
  var all: [Settlement] { settling + waiting }

  /// Returns whether the task has a settlement that is not even being stored yet.
  func isWaiting(_ id: TaskID) -> Bool { waiting.contains { $0.record.id == id } }

  /// Returns whether the task has a settlement that is not stored yet.
  func contains(_ id: TaskID) -> Bool {
    isWaiting(id) || settling.contains { $0.record.id == id }
  }

  /// Returns whether there is capacity for another settlement.
  ///
  /// If not, this records that the calling worker waits for capacity.
  mutating func requestCapacity() -> Bool {
    guard waiting.count >= capacity else { return true }
    isHeldBack = true
    return false
  }

  /// Returns whether there is nothing left to store.
  ///
  /// If not, this records that the calling worker waits until everything is stored.
  mutating func noteWaitingUnlessEmpty() -> Bool {
    if !isEmpty { isHeldBack = true }
    return isEmpty
  }

  /// Adds a settlement.
  ///
  /// - Returns: Whether the caller must wake the finisher, the Swift task that stores settlements.
  mutating func add(_ settlement: Settlement) -> Bool {
    waiting.append(settlement)
    return settling.isEmpty
  }

  /// Starts storing the waiting settlements.
  ///
  /// - Returns: The settlements; `nil` if there are none, or if another caller is still storing
  ///   some. That caller then stores the rest.
  mutating func takeWaiting() -> [Settlement]? {
    guard settling.isEmpty, !waiting.isEmpty else { return nil }
    settling = waiting
    waiting.removeAll(keepingCapacity: true)
    return settling
  }

  /// Records that the store has answered: each settlement is stored, or was put back.
  ///
  /// - Returns: The settlements that are stored, and whether a worker was waiting for that.
  mutating func finishStoring() -> (settlements: [Settlement], wakesWorkers: Bool) {
    defer {
      settling = []
      isHeldBack = false
    }
    return (settling, isHeldBack)
  }

  /// Makes settlements wait again, because they could not be stored.
  mutating func putBack(_ settlements: [Settlement]) {
    // Leave the other settlements that are being stored: another caller may be storing them.
    let leases = Set(settlements.map(\.change.lease))
    settling.removeAll { leases.contains($0.change.lease) }
    waiting = settlements + waiting
  }
}
