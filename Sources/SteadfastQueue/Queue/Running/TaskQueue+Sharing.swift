import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a queue does on a store that others use at the same time.
extension TaskQueue {
  /// Until when a claim that is made now lasts.
  nonisolated var leaseEnd: Date? {
    store.sharing.map { now + max(0, $0.leaseDuration / .seconds(1)) }
  }

  /// Extends claims until the body has returned, in a run that is cancelled too: its handlers may
  /// take long to end, and nobody is to take their tasks over meanwhile.
  nonisolated func extendingLeases(_ sharing: StoreSharing, while body: () async -> Void) async {
    let extending = Task(executorPreference: RealWork.taskExecutor) {
      await self.extendLeases(sharing)
    }
    await body()
    extending.cancel()
    await extending.value
  }

  /// Extends the claims of the tasks that are leased, until cancelled.
  private nonisolated func extendLeases(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancelled: the loop ends.
      try? await clock.wait(for: max(sharing.leaseDuration / 3, .milliseconds(1)))
      let leases = machine.withLock { $0.leases }
      guard let end = leaseEnd, !leases.isEmpty, !Task.isCancelled else { continue }
      do {
        let results = try await keep(leases.map { .extend($0, until: end) }, .relaxed)
        for (lease, result) in zip(leases, results) where result == .stale { lost(lease) }
      } catch {
        fail(error, to: "extend its claims")
      }
    }
  }

  /// Somebody else has taken a task over: its attempt here is cut short, and its end not kept.
  private nonisolated func lost(_ lease: Lease) {
    let worker = machine.withLock { $0.lose(lease) }
    // Nothing may be left that a pause waits for.
    stepWhilePaused.resumeAll(with: .success(()))
    if let worker { interrupts[worker].fire() }
  }

  /// Looks now and then for tasks that others have added, until cancelled.
  nonisolated func lookForOthersTasks(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancelled: the loop ends.
      try? await clock.wait(for: max(sharing.pollInterval, .milliseconds(1)))
      lookForWork()
      await tellOfOthersTasks()
    }
  }

  /// Tells those who wait for the end of a task that another process may have performed.
  private nonisolated func tellOfOthersTasks() async {
    let awaited = outcomes.awaited
    guard !awaited.isEmpty else { return }
    do {
      let filter = TaskFilter(ids: Set(awaited))
      let records = try await store.tasks(matching: filter, after: nil, limit: awaited.count)
      for record in records {
        if let outcome = record.outcome { outcomes.resolve(record.id, outcome) }
      }
      let found = Set(records.map(\.id))
      for id in awaited where !found.contains(id) {
        if !machine.withLock({ $0.isUnsettled(id) }) { outcomes.fail(id, Self.unknown(id)) }
      }
    } catch {
      fail(error, to: "look tasks up")
    }
  }

  static func unknown(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .unknownTask,
      "the task \(id) is not there any more: it has ended, and its outcome was not kept"
    )
  }
}
