import Synchronization

/// Subscribers to task outcomes: observers of events, callers that wait for outcomes, and the
/// statistics.
///
/// They are notified of an outcome only after it is stored, and of the changes of each task in the
/// order in which these were stored (``InFlightChanges``).
final class Observers: Sendable {
  let events: EventHub
  let outcomes = OutcomeRegistry()
  let changes: InFlightChanges
  /// Lets only one caller at a time replace the task with a unique key.
  let keyTurns: KeyedMutex
  let statistics: Mutex<QueueStatistics.Tally>
  /// Whether the store's answer to a caller's change was lost, so that the end of a task may be
  /// unreported.
  let mayHaveUnreportedOutcomes = Atomic(false)

  init(eventCapacity: Int, statistics: QueueStatistics.Tally, _ availability: StoreAvailability) {
    changes = InFlightChanges(availability)
    keyTurns = KeyedMutex(availability)
    events = EventHub(capacity: eventCapacity)
    self.statistics = Mutex(statistics)
  }

  // MARK: New tasks

  /// Prepares the `.enqueued` events, before other callers can find the tasks in the store.
  func prepareEnqueuedEvents(of records: some Sequence<TaskRecord>) {
    if events.isObserved { for record in records { events.prepareEnqueuedEvent(of: record) } }
  }

  /// Withdraws the `.enqueued` events of tasks that were not stored.
  func withdrawEnqueuedEvents(of records: some Sequence<TaskRecord>) {
    for record in records { events.withdrawEnqueuedEvent(of: record) }
  }

  /// Reports that a new task has replaced the contents of an existing task, which keeps its ID.
  func reportMerge(into id: TaskID) async {
    await changes.waitUncancelled(until: .allIsReported, of: id)
    events.postEnqueuedEvent(of: id)
    events.post(.updated(id))
  }

  // MARK: Attempts

  func reportStart(of record: TaskRecord, afterWaiting waiting: Duration) {
    statistics.withLock { $0.countAttempt(afterWaiting: waiting) }
    events.post(.started(record))
  }

  func recordRunTime(_ time: Duration) { statistics.withLock { $0.addRunTime(time) } }

  func reportProgress(_ fraction: Double, of record: TaskRecord) {
    outcomes.reportProgress(fraction, of: record.id)
    events.post(.progressed(record, fraction: fraction))
  }

  // MARK: Stored changes

  /// Waits until every change of a task before its claim is reported.
  ///
  /// A cancelled run stops waiting once the store is unavailable.
  func waitForEarlierReports(ofClaimed record: TaskRecord) async {
    // A call that replaces the task with a unique key learns the task's ID only from the store's
    // answer. So wait for that call by the key.
    if let key = record.uniqueKey { try? await keyTurns.waitForCurrentHolder(of: key) }
    await waitForEarlierReports(of: record.id)
  }

  /// Waits until every earlier change of a task is reported.
  ///
  /// A cancelled run stops waiting once the store is unavailable.
  func waitForEarlierReports(of id: TaskID) async {
    // Usually nothing is under way. Then avoid one more asynchronous call.
    if changes.areUnderWay { try? await changes.wait(until: .allIsReported, of: id) }
    events.postEnqueuedEvent(of: id)
  }

  /// Reports stored settlements.
  func report(_ settlements: some Collection<Settlement>) {
    statistics.withLock { tally in
      for settlement in settlements { tally.count(settlement.change) }
    }
    for settlement in settlements { report(settlement) }
  }

  private func report(_ settlement: Settlement) {
    let id = settlement.record.id
    if let outcome = settlement.outcome {
      outcomes.resolve(id, outcome, value: settlement.value)
    }
    if events.isObserved, let event = settlement.event { events.post(event) }
    switch settlement.change {
    case .retry(_, _, _, let failure, _): if failure != nil { outcomes.reportProgress(0, of: id) }
    case .restart: outcomes.reopen(id)
    case .succeed, .abandon, .cancel, .release, .park, .pause, .resume, .reschedule, .update,
      .remove, .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete,
      .setValue:
      break
    }
  }

  /// Reports that the end of another task cancelled this one.
  func reportCancellation(of id: TaskID, becauseOf cause: TaskID) {
    events.postEnqueuedEvent(of: id)
    outcomes.resolve(id, .cancelled)
    events.post(.cancelledByDependency(id, because: cause))
  }

  /// Reports that the restart of another task restarted this one.
  func reportRestart(of id: TaskID) {
    events.postEnqueuedEvent(of: id)
    outcomes.reopen(id)
    events.post(.retried(id))
  }

  /// Reports that a task whose attempt has failed was superseded.
  ///
  /// - Returns: Whether a caller may wait for the outcome of the successor.
  func reportSuperseded(_ settlement: Settlement, by successor: TaskID) -> Bool {
    report(CollectionOfOne(settlement))
    events.post(.superseded(settlement.record, by: successor))
    return outcomes.link(settlement.record.id, to: successor)
  }
}
