import Synchronization

/// Reports changes to observers of events, to callers that wait for outcomes, and to the
/// statistics.
///
/// A change is reported only after it is stored. Changes of one task are reported in the order in
/// which they were stored (``InFlightChanges``).
final class Observers: Sendable {
  let events: EventHub
  let outcomes = OutcomeRegistry()
  let changes: InFlightChanges
  /// Locks unique keys, so that only one caller at a time replaces the task with a key.
  let keyLocks: KeyedMutex
  let statistics: Mutex<QueueStatistics.Tally>
  /// Whether a task may have ended without a report, because the store's answer to a change was
  /// lost.
  let mayHaveUnreportedOutcomes = Atomic(false)

  init(eventCapacity: Int, statistics: QueueStatistics.Tally, _ availability: StoreAvailability) {
    changes = InFlightChanges(availability)
    keyLocks = KeyedMutex(availability)
    events = EventHub(capacity: eventCapacity)
    self.statistics = Mutex(statistics)
  }

  // MARK: New tasks

  /// Prepares the `.enqueued` events of tasks, which must be done before the tasks are stored.
  func prepareEnqueuedEvents(of records: some Sequence<TaskRecord>) {
    if events.isObserved { for record in records { events.prepareEnqueuedEvent(of: record) } }
  }

  /// Withdraws the `.enqueued` events of tasks that were not stored.
  func withdrawEnqueuedEvents(of records: some Sequence<TaskRecord>) {
    for record in records { events.withdrawEnqueuedEvent(of: record) }
  }

  /// Reports that an existing task has taken over the contents of a new one.
  func reportMerge(into id: TaskID) async {
    await changes.waitUncancelled(until: .allIsReported, of: id)
    events.postEnqueuedEvent(of: id)
    events.post(.updated(id))
  }

  // MARK: Attempts

  func reportStart(of record: TaskRecord, afterWaiting waiting: Duration) {
    statistics.withLock { $0.countAttempt(of: record.name, afterWaiting: waiting) }
    events.post(.started(record))
  }

  func recordRunTime(_ time: Duration, of name: String) {
    statistics.withLock { $0.addRunTime(time, of: name) }
  }

  func reportProgress(_ fraction: Double, of record: TaskRecord) {
    outcomes.reportProgress(fraction, of: record.id)
    events.post(.progressed(record, fraction: fraction))
  }

  // MARK: Stored changes

  /// Waits until every change of a task that was stored before its claim is reported.
  ///
  /// If the run is cancelled and the store is unavailable, this does not wait any longer.
  func waitForEarlierReports(ofClaimed record: TaskRecord) async {
    // A call that replaces the task with this unique key learns the task's ID only from the store's
    // answer. Until then, only the key shows that there is such a call.
    if let key = record.uniqueKey { try? await keyLocks.waitForCurrentHolder(of: key) }
    await waitForEarlierReports(of: record.id)
  }

  /// Waits until every change of a task that was stored before is reported.
  ///
  /// If the run is cancelled and the store is unavailable, this does not wait any longer.
  func waitForEarlierReports(of id: TaskID) async {
    // Usually there is no such change. Then avoid an asynchronous call.
    if changes.areUnderWay { try? await changes.wait(until: .allIsReported, of: id) }
    events.postEnqueuedEvent(of: id)
  }

  /// Reports stored settlements.
  func report(_ settlements: some Collection<Settlement>) {
    statistics.withLock { tally in
      for settlement in settlements {
        tally.count(settlement.change, of: settlement.record.name)
      }
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
    case .move(_, let move) where move.kind == .retry:
      if move.failure != nil { outcomes.reportProgress(0, of: id) }
    case .move(_, let move) where move.kind == .restart: outcomes.reopen(id)
    default: break
    }
  }

  /// Reports that a task was cancelled because a task that it depended on ended without success.
  func reportCancellation(of id: TaskID, becauseOf cause: TaskID) {
    events.postEnqueuedEvent(of: id)
    outcomes.resolve(id, .cancelled)
    events.post(.cancelledByDependency(id, because: cause))
  }

  /// Reports that a task was restarted because a task that it depends on was.
  func reportRestart(of id: TaskID) {
    events.postEnqueuedEvent(of: id)
    outcomes.reopen(id)
    events.post(.retried(id))
  }

  /// Reports that a task whose attempt has failed was replaced by its successor, a task with the
  /// same unique key.
  ///
  /// - Returns: Whether the outcome of the successor is still unknown. If not, the caller must look
  ///   the outcome up in the store.
  func reportSuperseded(_ settlement: Settlement, by successor: TaskID) -> Bool {
    report(CollectionOfOne(settlement))
    events.post(.superseded(settlement.record, by: successor))
    return outcomes.link(settlement.record.id, to: successor)
  }
}
