import Synchronization

/// A store of this package on which only one queue runs at a time.
package protocol UnsharedStore: Persistence {
  /// Records which queue runs on the store; `nil` if the underlying store has no such record.
  var use: (any StoreUse)? { get }
  /// Whether calls may fail temporarily because another program blocks the store.
  var hasTransientErrors: Bool { get }

  /// Makes calls no longer wait for a server that does not respond, or wait again.
  ///
  /// A queue calls this when the time for its run has passed, and again when the run has ended.
  func setWaiting(_ waits: Bool)
}

extension UnsharedStore {
  /// `false`: no other program blocks the store.
  package var hasTransientErrors: Bool { false }
  /// Does nothing.
  package func setWaiting(_ waits: Bool) {}
}

/// A record of which queue runs on a store.
package protocol StoreUse: Sendable {
  /// Records that the queue with this name starts to run on the store.
  ///
  /// - Throws: A ``TaskQueueError`` if another queue is running on the store.
  func beginRun(ofQueue name: String, on store: any Persistence) throws(TaskQueueError)

  /// Records that the queue has stopped running on the store.
  func endRun()
}

extension Persistence {
  /// The record of which queue runs on the store; `nil` if the store has none.
  var useIfKnown: (any StoreUse)? { (self as? any UnsharedStore)?.use }
}

/// Ensures that only one queue at a time runs on a store.
///
/// If two queues ran on the store, each would perform the other's tasks. A caller that waits with
/// one queue for a task's outcome would not learn that the other queue has performed the task.
package final class ExclusiveUse: StoreUse {
  private let runningQueue = Mutex<String?>(nil)

  package init() {}

  package func beginRun(
    ofQueue name: String,
    on store: any Persistence
  ) throws(TaskQueueError) {
    let other = runningQueue.withLock { runningQueue -> String? in
      if let runningQueue { return runningQueue }
      runningQueue = name
      return nil
    }
    guard let other else { return }
    throw TaskQueueError(
      .alreadyRunning,
      "the queue '\(other)' is running on the store (\(store)), which serves one queue at a time: "
        + "wait for that run to end, or give the queue '\(name)' another store"
    )
  }

  package func endRun() { runningQueue.withLock { $0 = nil } }
}
