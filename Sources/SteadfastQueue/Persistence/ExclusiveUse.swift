import Synchronization

/// A store of this package on which one queue at a time may run.
package protocol UnsharedStore: Persistence {
  /// Who runs on it; `nil` if the underlying store does not say.
  var use: (any StoreUse)? { get }
  /// Whether a call may fail because another program keeps the store from making it for a while.
  var hasTransientErrors: Bool { get }
}

extension UnsharedStore {
  /// `false`.
  package var hasTransientErrors: Bool { false }
}

/// Notes which queue runs on a store.
package protocol StoreUse: Sendable {
  /// Notes that a queue of this name, which does not run yet, begins to run on the store.
  ///
  /// - Throws: A ``TaskQueueError`` if another queue runs.
  func begin(_ name: String, on store: any Persistence) throws(TaskQueueError)

  /// Notes that the queue that runs has ended its run.
  func end()
}

extension Persistence {
  /// Who runs on the store, if the store says so.
  var useIfKnown: (any StoreUse)? { (self as? any UnsharedStore)?.use }
}

/// Which queue runs on a store.
///
/// Two queues that ran on one store would perform each other's tasks. A caller that waits for an
/// outcome with one queue would never hear of what the other did.
package final class ExclusiveUse: StoreUse {
  /// The name of the queue that runs.
  private let user = Mutex<String?>(nil)

  package init() {}

  /// Notes that a queue of this name, which does not run yet, begins to run on the store.
  ///
  /// - Throws: A ``TaskQueueError`` if another queue runs.
  package func begin(_ name: String, on store: any Persistence) throws(TaskQueueError) {
    let other = user.withLock { user -> String? in
      if let user { return user }
      user = name
      return nil
    }
    guard let other else { return }
    throw TaskQueueError(
      .alreadyRunning,
      "the queue '\(other)' runs on the store (\(store)), which serves one at a time: wait for "
        + "that run to end, or give the queue '\(name)' a store of its own"
    )
  }

  /// Notes that the queue that runs has ended its run.
  package func end() { user.withLock { $0 = nil } }
}
