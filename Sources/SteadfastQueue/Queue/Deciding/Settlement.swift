import SystemFoundation

/// The change that settles a task, and the task's record before the change.
///
/// It is a class because a settlement is large to copy, and is read in many places.
final class Settlement: Sendable {
  let change: TaskChange
  let record: TaskRecord
  /// The handler's return value.
  let value: (any Sendable)?
  /// How long the attempt took; `nil` if none was made.
  let timing: TaskTiming?
  /// The handler that could not decode the payload, if the task is parked for that reason.
  let handler: AnyHandler?
  /// Whether an attempt was begun; if not, the task was only claimed.
  let wasBegun: Bool
  /// Whether the attempt used the task's memory.
  let usedMemory: Bool
  /// Whether the store failed, but may have stored the change all the same.
  let isInDoubt: Bool

  init(
    change: TaskChange,
    record: TaskRecord,
    value: (any Sendable)? = nil,
    timing: TaskTiming? = nil,
    handler: AnyHandler? = nil,
    wasBegun: Bool = true,
    usedMemory: Bool = false,
    isInDoubt: Bool = false
  ) {
    self.change = change
    self.record = record
    self.value = value
    self.timing = timing
    self.handler = handler
    self.wasBegun = wasBegun
    self.usedMemory = usedMemory
    self.isInDoubt = isInDoubt
  }

  var inDoubt: Settlement {
    Settlement(
      change: change,
      record: record,
      value: value,
      timing: timing,
      handler: handler,
      wasBegun: wasBegun,
      usedMemory: usedMemory,
      isInDoubt: true
    )
  }

  /// How the task ended, if the change ends it.
  var outcome: TaskOutcome? {
    switch change {
    case .succeed: .succeeded
    case .abandon(_, let failure, _): .abandoned(reason: failure.reason)
    case .cancel: .cancelled
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remove, .insert,
      .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      nil
    }
  }

  /// Whether other reports about the task may arrive at the same time.
  ///
  /// They may if the task stays in the store, where more can happen to it. They also may if the
  /// task's memory can contain a token, because a completion with that token may arrive first.
  var mayMeetOthers: Bool {
    switch change {
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remember,
      .suspend, .complete:
      true
    case .succeed, .abandon, .cancel: isKeptEnd || usedMemory || record.memorySize > 0
    case .remove, .insert, .unpark, .extend, .prune, .rebase, .setValue: false
    }
  }

  /// Whether the task has ended and is retained.
  var isKeptEnd: Bool {
    switch change {
    case .succeed(_, _, let retains), .abandon(_, _, let retains), .cancel(_, _, let retains):
      retains
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remove, .insert,
      .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      false
    }
  }

  /// The event to post when the change is stored, if there is one.
  var event: TaskEvent? {
    switch change {
    case .succeed: .succeeded(record, timing: timing ?? .zero)
    case .abandon(_, let failure, _):
      .abandoned(record, reason: failure.reason, timing: timing)
    case .retry(_, let date, _, let failure?, _):
      .failed(record, reason: failure.reason, retryDate: date, timing: timing ?? .zero)
    case .retry(_, let date, _, nil, _): .snoozed(record, until: date)
    case .release: wasBegun ? .released(record) : nil
    case .park(_, let failure): .unhandled(record, reason: failure.reason)
    case .cancel: .cancelled(record.id)
    case .pause: .paused(record.id)
    case .resume: .resumed(record.id)
    case .restart: .retried(record.id)
    case .suspend(_, let date, _, _): .suspended(record, until: date < .distantFuture ? date : nil)
    case .complete(let id, _, _): .completionArrived(id)
    case .reschedule(_, let date, _): wasBegun ? .rescheduled(record.id, to: date) : nil
    case .update(let id, _): .updated(id)
    case .remove, .insert, .unpark, .extend, .prune, .rebase, .remember, .setValue: nil
    }
  }
}

/// The settlements that are not stored yet.
///
/// They are stored as one batch. So no settlement may set a value: if the store refused the value,
/// it would not store the settlements of other attempts either.
struct PendingResults: Sendable {
  private let capacity: Int
  /// The settlements that were added since the last ``takeWaiting()``.
  private var waiting: [Settlement] = []
  /// The settlements that are being stored.
  private var settling: [Settlement] = []
  /// Whether a worker waits for capacity.
  private var isHeldBack = false

  init(capacity: Int) { self.capacity = capacity }

  /// Whether there is nothing left to store.
  var isEmpty: Bool { settling.isEmpty && waiting.isEmpty }

  /// Whether a caller is storing settlements.
  var isStoring: Bool { !settling.isEmpty }

  /// All settlements that are not stored yet; first those that are being stored.
  var all: [Settlement] { settling + waiting }

  /// Returns whether the storing of the task's settlement has not started.
  func isWaiting(_ id: TaskID) -> Bool { waiting.contains { $0.record.id == id } }

  /// Returns whether a settlement of the task is not stored yet.
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
  /// - Returns: Whether to wake the finisher.
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

  /// Ends the storing of settlements, which are now stored or back in the outbox.
  ///
  /// - Returns: The settlements that are stored, and whether a worker waited for capacity.
  mutating func finishStoring() -> (settlements: [Settlement], wakesWorkers: Bool) {
    defer {
      settling = []
      isHeldBack = false
    }
    return (settling, isHeldBack)
  }

  /// Puts settlements that could not be stored back into the outbox.
  mutating func putBack(_ settlements: [Settlement]) {
    // The other settlements that are being stored may be those of another caller.
    let leases = Set(settlements.map(\.change.lease))
    settling.removeAll { leases.contains($0.change.lease) }
    waiting = settlements.map(\.inDoubt) + waiting
  }
}
