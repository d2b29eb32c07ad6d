import Synchronization

/// Subscribers to task outcomes: observers of events, callers that wait for outcomes, and the
/// statistics.
///
/// They are notified only after an outcome is stored, and for each task in the order in which its
/// changes were stored (``InFlightChanges``).
final class Observers: Sendable {
  let events: EventHub
  let outcomes = OutcomeRegistry()
  let changes: InFlightChanges
  /// Lets callers that replace the task with a unique key do so one at a time.
  let keyTurns: KeyedMutex
  let statistics: Mutex<QueueStatistics.Tally>
  /// Whether the answer to a caller's change was lost, so that a task's end may be unreported.
  let mayHaveUnreportedOutcomes = Atomic(false)

  init(eventCapacity: Int, statistics: QueueStatistics.Tally, _ availability: StoreAvailability) {
    changes = InFlightChanges(availability)
    keyTurns = KeyedMutex(availability)
    events = EventHub(capacity: eventCapacity)
    self.statistics = Mutex(statistics)
  }

  // MARK: New tasks

  /// Prepares the `.enqueued` events, before other callers can find the tasks in the store.
  func willEnqueue(_ records: some Sequence<TaskRecord>) {
    if events.isObserved { for record in records { events.willEnqueue(record) } }
  }

  /// Withdraws the `.enqueued` events of tasks that were not stored.
  func didNotEnqueue(_ records: some Sequence<TaskRecord>) {
    for record in records { events.didNotEnqueue(record) }
  }

  /// Reports that a new task was merged into this one.
  func absorbedNewTask(_ id: TaskID) async {
    await changes.waitUncancelled(until: .allIsReported, of: id)
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

  /// Waits until every change of a task before its claim is reported.
  ///
  /// A cancelled run stops waiting once the store is unavailable.
  func catchUp(withClaimed record: TaskRecord) async {
    // A call that replaces a task learns only from the store's answer which task that is.
    if let key = record.uniqueKey { try? await keyTurns.waitForPresentTurn(at: key) }
    await catchUp(with: record.id)
  }

  /// Waits until every earlier change of a task is reported.
  ///
  /// A cancelled run stops waiting once the store is unavailable.
  func catchUp(with id: TaskID) async {
    // Usually nothing is under way. Then avoid one more asynchronous call.
    if changes.areUnderWay { try? await changes.wait(until: .allIsReported, of: id) }
    events.announce(id)
  }

  /// Reports stored settlements.
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

  /// Reports that the end of another task cancelled this one.
  func cancelledByDependency(_ id: TaskID, because cause: TaskID) {
    events.announce(id)
    outcomes.resolve(id, .cancelled)
    events.post(.cancelledByDependency(id, because: cause))
  }

  /// Reports that the restart of another task restarted this one.
  func restartedAlong(_ id: TaskID) {
    events.announce(id)
    outcomes.reopen(id)
    events.post(.retried(id))
  }

  /// Reports that a task whose attempt has failed was superseded.
  ///
  /// - Returns: Whether a caller may wait for the outcome of the successor.
  func superseded(_ settlement: Settlement, by successor: TaskID) -> Bool {
    tell(CollectionOfOne(settlement))
    events.post(.superseded(settlement.record, by: successor))
    return outcomes.link(settlement.record.id, to: successor)
  }
}
