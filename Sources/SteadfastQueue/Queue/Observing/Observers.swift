import Synchronization

/// Everybody who learns what becomes of tasks: observers of events, callers that wait for outcomes,
/// and the statistics.
///
/// They learn it only after it is stored, and for each task in the order in which it was stored
/// (``InFlightChanges``).
final class Observers: Sendable {
  let events: EventHub
  let outcomes = OutcomeRegistry()
  let changes: InFlightChanges
  /// Callers that replace the task with a unique key, one at a time for each key.
  let keyTurns: KeyedMutex
  let statistics: Mutex<QueueStatistics.Tally>
  /// Whether the answer to a caller's change was lost, so that a task may have ended untold.
  let mayMissEnds = Atomic(false)

  init(eventCapacity: Int, statistics: QueueStatistics.Tally, _ absence: StoreAvailability) {
    changes = InFlightChanges(absence)
    keyTurns = KeyedMutex(absence)
    events = EventHub(capacity: eventCapacity)
    self.statistics = Mutex(statistics)
  }

  // MARK: New tasks

  /// Prepares the `.enqueued` events, before other callers can learn from the store of the tasks.
  func willEnqueue(_ records: some Sequence<TaskRecord>) {
    if events.isObserved { for record in records { events.willEnqueue(record) } }
  }

  /// Withdraws the `.enqueued` events of tasks that were not stored.
  func didNotEnqueue(_ records: some Sequence<TaskRecord>) {
    for record in records { events.didNotEnqueue(record) }
  }

  /// Tells that this task has taken a new one over.
  func tookOver(_ id: TaskID) async {
    await changes.waitUncancelled(until: .allIsTold, of: id)
    events.announce(id)
    events.post(.updated(id))
  }

  // MARK: Attempts

  func attemptBegan(_ record: TaskRecord, after waiting: Duration) {
    statistics.withLock { $0.began(after: waiting) }
    events.post(.started(record))
  }

  func attemptEnded(after time: Duration) { statistics.withLock { $0.ended(after: time) } }

  func progressed(_ record: TaskRecord, to fraction: Double) {
    outcomes.report(fraction, of: record.id)
    events.post(.progressed(record, fraction: fraction))
  }

  // MARK: Stored changes

  /// Waits until everything is told that happened to a task before it was claimed.
  ///
  /// A run that is cancelled while the store is gone waits no longer.
  func catchUp(withClaimed record: TaskRecord) async {
    // A call that replaces a task learns only from the store's answer which one that is.
    if let key = record.uniqueKey { try? await keyTurns.waitForPresentTurn(at: key) }
    await catchUp(with: record.id)
  }

  /// Waits until everything that has happened to a task until now is told.
  ///
  /// A run that is cancelled while the store is gone waits no longer.
  func catchUp(with id: TaskID) async {
    // Mostly nothing is under way. Then this is no further asynchronous call.
    if changes.areUnderWay { try? await changes.wait(until: .allIsTold, of: id) }
    events.announce(id)
  }

  /// Tells what has been stored about tasks.
  func tell(_ settlements: some Collection<Settlement>) {
    statistics.withLock { tally in
      for settlement in settlements { tally.stored(settlement.change) }
    }
    for settlement in settlements { tell(settlement) }
  }

  private func tell(_ settlement: Settlement) {
    let id = settlement.record.id
    if let outcome = settlement.outcome {
      outcomes.resolve(id, outcome, value: settlement.value)
    }
    if events.isObserved, let event = settlement.event { events.post(event) }
    switch settlement.change {
    case .retry(_, _, _, let failure, _): if failure != nil { outcomes.report(0, of: id) }
    case .restart: outcomes.reopen(id)
    case .succeed, .abandon, .cancel, .release, .park, .pause, .resume, .reschedule, .update,
      .remove, .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete,
      .setValue:
      break
    }
  }

  /// Tells that a task was cancelled because of the end of another one.
  func cancelledAlong(_ id: TaskID, because cause: TaskID) {
    events.announce(id)
    outcomes.resolve(id, .cancelled)
    events.post(.cancelledAlong(id, because: cause))
  }

  /// Tells that a task was restarted along with another one.
  func restartedAlong(_ id: TaskID) {
    events.announce(id)
    outcomes.reopen(id)
    events.post(.retried(id))
  }

  /// Tells that a task whose attempt has failed was superseded.
  ///
  /// - Returns: Whether a caller may wait for the outcome of the successor.
  func superseded(_ settlement: Settlement, by successor: TaskID) -> Bool {
    tell(CollectionOfOne(settlement))
    events.post(.superseded(settlement.record, by: successor))
    return outcomes.link(settlement.record.id, to: successor)
  }
}
