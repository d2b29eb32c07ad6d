import SystemFoundation

/// The change that settles a task, and the task's record before the change.
///
/// It is an object because it has many parts to copy, and many readers.
final class Settlement: Sendable {
  let change: TaskChange
  let record: TaskRecord
  /// What the handler returned.
  let value: (any Sendable)?
  /// How long the attempt took; `nil` if none was made.
  let timing: TaskTiming?
  /// The handler that could not decode the payload, if the task is parked for that.
  let handler: AnyHandler?
  /// Whether an attempt was begun; if not, the task was only claimed.
  let wasBegun: Bool
  /// Whether the attempt has used what the task remembers.
  let usedMemory: Bool
  /// Whether the store failed to store the change, and may have stored it all the same.
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

  /// Whether something else may be told of the task at the same time.
  ///
  /// The task is still there afterwards, so that more may happen to it; or a completion may come
  /// before, which needs a token that the task remembers.
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
/// What gathers is stored as one batch. So no settlement sets a value: a value that differs would
/// leave the settlements of other attempts unstored, too.
struct PendingResults: Sendable {
  private let capacity: Int
  /// The settlements that have gathered since the last ones were taken.
  private var waiting: [Settlement] = []
  /// The settlements that were taken, and are being stored.
  private var settling: [Settlement] = []
  /// Whether a worker waits for room.
  private var isHeldBack = false

  init(capacity: Int) { self.capacity = capacity }

  /// Whether there is nothing left to store.
  var isEmpty: Bool { settling.isEmpty && waiting.isEmpty }

  /// Whether a caller is storing settlements.
  var isStoring: Bool { !settling.isEmpty }

  /// All settlements that are not stored yet, beginning with those that were taken.
  var all: [Settlement] { settling + waiting }

  /// Returns whether a settlement of the task waits to be taken.
  func isWaiting(_ id: TaskID) -> Bool { waiting.contains { $0.record.id == id } }

  /// Returns whether a settlement of the task is not stored yet.
  func contains(_ id: TaskID) -> Bool {
    isWaiting(id) || settling.contains { $0.record.id == id }
  }

  /// Returns whether there is room for another settlement.
  ///
  /// If not, the worker waits.
  mutating func letsGoOn() -> Bool {
    guard waiting.count >= capacity else { return true }
    isHeldBack = true
    return false
  }

  /// Returns whether there is nothing left to store.
  ///
  /// If not, the worker waits.
  mutating func isSettled() -> Bool {
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

  /// Takes the settlements that have gathered.
  ///
  /// - Returns: The settlements; `nil` if there are none, or if another caller is still storing
  ///   some. That caller then takes the rest.
  mutating func take() -> [Settlement]? {
    guard settling.isEmpty, !waiting.isEmpty else { return nil }
    settling = waiting
    waiting.removeAll(keepingCapacity: true)
    return settling
  }

  /// Ends the storing of the settlements that were taken: they are stored, or back in the outbox.
  ///
  /// - Returns: The settlements that are stored, and whether a worker waited for room.
  mutating func settled() -> (settlements: [Settlement], wakesWorkers: Bool) {
    defer {
      settling = []
      isHeldBack = false
    }
    return (settling, isHeldBack)
  }

  /// Returns settlements to the outbox that could not be stored.
  mutating func putBack(_ settlements: [Settlement]) {
    // Settlements that another caller has taken are still being stored.
    let leases = Set(settlements.map(\.change.lease))
    settling.removeAll { leases.contains($0.change.lease) }
    waiting = settlements.map(\.inDoubt) + waiting
  }
}
