import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a queue does on a store that others use at the same time.
extension TaskQueue {
  /// How long a claim lasts unless it is extended; `nil` if the store is not shared.
  nonisolated var leaseDuration: Duration? {
    store.sharing.map { min($0.leaseDuration, .longestStorable) }
  }

  /// Extends leases until the body has returned.
  ///
  /// It does so in a cancelled run, too: the run's handlers may take long to end, and no other
  /// queue may take over their tasks before that.
  nonisolated func extendingLeases(_ sharing: StoreSharing, while body: () async -> Void) async {
    let executor = time.deadlineExecutor ?? RealWork.taskExecutor
    let extending = Task(executorPreference: executor) {
      await self.extendLeases(sharing)
    }
    await body()
    extending.cancel()
    await extending.value
  }

  /// Extends the leases of the queue's tasks, until cancelled.
  private nonisolated func extendLeases(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancellation ends the loop.
      try? await time.wait(for: max(sharing.leaseDuration / 3, .milliseconds(1)))
      guard let duration = leaseDuration, !Task.isCancelled else { continue }
      do {
        try await extendPresentLeases(for: duration)
      } catch {
        fail(error, to: "extend its claims")
      }
    }
  }

  /// Extends the leases that the queue holds at this moment.
  ///
  /// After a transient error, it extends those that the queue holds by then: while one task is
  /// locked, all calls that extend its lease may fail, and leases of later claims must not run out.
  nonisolated func extendPresentLeases(for duration: Duration) async throws {
    // What could not be extended in time has run out, so the first try counts.
    let start = time.stopwatch()
    var retries = 0
    while true {
      let leases = machine.withLock { $0.leases }
      let extensions = leases.map { TaskChange.extend($0, for: duration) }
      do {
        let results = try await extensions.isEmpty ? [] : persistOnce(extensions, .relaxed)
        // An end of a task whose lease ran out is in doubt until it is stored: whose end is it?
        if !results.contains(.stale) || !leasesMayHaveRunOut(by: start) {
          machine.withLock { $0.leasesExtended = start }
        }
        for (lease, result) in zip(leases, results) where result == .stale { lost(lease) }
        return
      } catch {
        try await waitToRepeat(after: error, &retries)
      }
    }
  }

  /// Whether a claim of this queue may have run out, because it could not be extended.
  nonisolated var leasesMayHaveRunOut: Bool { leasesMayHaveRunOut(by: time.stopwatch()) }

  private nonisolated func leasesMayHaveRunOut(by now: Duration) -> Bool {
    guard let leaseDuration else { return false }
    return machine.withLock { now >= $0.leasesExtended + leaseDuration }
  }

  /// Extends the leases of this process that may have run out, before a claim.
  ///
  /// The process may have been stopped, with the whole machine for example. A claim would take its
  /// tasks back from it, and count that as an interruption, while their handlers go on.
  nonisolated func extendLateLeases() async throws {
    guard let leaseDuration else { return }
    for queue in queuesOfGroup where queue.leasesMayHaveRunOut {
      try await looking { try await queue.extendPresentLeases(for: leaseDuration) }
    }
  }

  /// Handles a lease whose task another queue has taken over.
  ///
  /// The attempt in this queue is cut short, and its end is not stored.
  nonisolated func lost(_ lease: Lease) {
    let worker = machine.withLock { $0.lose(lease) }
    // There may be nothing left that a pause waits for.
    signals.pauseProgress.resumeAll(with: .success(()))
    if let worker { signals.interrupts[worker].signal() }
  }

  /// Looks at regular intervals for tasks that other queues have added, until cancelled.
  nonisolated func lookForOthersTasks(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancellation ends the loop.
      try? await time.clock.wait(for: max(sharing.pollInterval, .milliseconds(1)))
      await lookAtStore()
    }
  }

  /// Looks for the tasks of others when the store hints at them, until cancelled.
  ///
  /// In a store that is not shared, no queue has added them, but a statement of another program
  /// (``insertStatement(for:uniqueKey:options:)``).
  nonisolated func follow(_ hints: AsyncStream<Void>) async {
    for await _ in hints {
      if store.sharing == nil { lookForWork() } else { await lookAtStore() }
    }
  }

  /// Looks for what other queues on the store have changed.
  private nonisolated func lookAtStore() async {
    // First, so that nothing begins that another queue has paused.
    await followStoredPause()
    lookForWork()
    await tellOfOthersTasks()
    do {
      try await restoreSchedulesEachHour()
    } catch {
      fail(error, to: "look after its schedules")
    }
  }

  /// Looks up awaited tasks that another process may have ended, and resumes their waiters.
  private nonisolated func tellOfOthersTasks() async {
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      fail(error, to: "look tasks up")
    }
  }

  /// Tells waiting callers how tasks ended whose ends were not reported to this queue.
  ///
  /// - Throws: What the store throws.
  nonisolated func tellWhatIsStored(of ids: [TaskID]) async throws {
    for page in ids.lookUpPages { try await tellWhatIsStored(ofPage: page) }
  }

  private nonisolated func tellWhatIsStored(ofPage ids: ArraySlice<TaskID>) async throws {
    let filter = TaskFilter(ids: Set(ids))
    let versions = observers.outcomes.versions(of: ids)
    let records = try await store.tasks(matching: filter, after: nil, limit: ids.count)
    // If an end is on its way into the store, or was stored just now, it is reported, and a success
    // with its value.
    func isReported(_ id: TaskID) -> Bool {
      machine.withLock { $0.isUnsettled(id) } || observers.changes.isUnderWay(id)
    }
    for record in records {
      guard let outcome = record.outcome, outcome != .succeeded || !isReported(record.id) else {
        continue
      }
      observers.outcomes.resolve(record.id, outcome, ifStill: versions[record.id])
    }
    let found = Set(records.map(\.id))
    for id in ids where !found.contains(id) && !isReported(id) {
      observers.outcomes.fail(id, Self.unknown(id), ifStill: versions[id])
    }
  }

  static func unknown(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .unknownTask,
      "the task \(id) is not there any more: it has ended, and its outcome was not kept; to learn "
        + "outcomes, set succeededRetention and cancelledRetention in each queue on the store"
    )
  }
}
