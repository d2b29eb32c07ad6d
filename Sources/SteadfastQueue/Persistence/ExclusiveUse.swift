import Synchronization

/// A store of this package on which only one queue runs at a time.
package protocol UnsharedStore: Persistence {
  /// The record of the queue that runs on the store; `nil` if the underlying store has none.
  var use: (any StoreUse)? { get }
  /// Whether calls may fail temporarily because another program blocks the store.
  var hasTransientErrors: Bool { get }
}

extension UnsharedStore {
  /// `false`.
  package var hasTransientErrors: Bool { false }
}

/// A record of the queue that runs on a store.
package protocol StoreUse: Sendable {
  /// Records that a queue with this name starts to run on the store, where it was not running.
  ///
  /// - Throws: A ``TaskQueueError`` if another queue runs on the store.
  func begin(_ name: String, on store: any Persistence) throws(TaskQueueError)

  /// Records that the running queue has ended its run.
  func end()
}

extension Persistence {
  /// The record of the queue that runs on the store, if the store has one.
  var useIfKnown: (any StoreUse)? { (self as? any UnsharedStore)?.use }
}

/// A record of the queue that runs on a store.
///
/// Two queues that run on one store would perform each other's tasks. A caller that waits for an
/// outcome with one queue would never learn what the other queue did.
package final class ExclusiveUse: StoreUse {
  /// The name of the running queue.
  private let user = Mutex<String?>(nil)

  package init() {}

  /// Records that a queue with this name starts to run on the store, where it was not running.
  ///
  /// - Throws: A ``TaskQueueError`` if another queue runs on the store.
  package func begin(_ name: String, on store: any Persistence) throws(TaskQueueError) {
    let other = user.withLock { user -> String? in
      if let user { return user }
      user = name
      return nil
    }
    guard let other else { return }
    throw TaskQueueError(
      .alreadyRunning,
      "the queue '\(other)' is running on the store (\(store)), which serves one queue at a time: "
        + "wait for that run to end, or give the queue '\(name)' another store"
    )
  }

  /// Records that the running queue has ended its run.
  package func end() { user.withLock { $0 = nil } }
}
