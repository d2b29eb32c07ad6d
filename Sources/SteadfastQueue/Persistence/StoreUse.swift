import Synchronization

/// A store of this package that one queue at a time may run on.
protocol UnsharedStore: Persistence {
  /// Who runs on it; `nil` if the store that it rests on does not say.
  var use: StoreUse? { get }
}

extension Persistence {
  /// Who runs on the store, if it says so.
  var useIfKnown: StoreUse? { (self as? any UnsharedStore)?.use }
}

/// Which queue runs on a store.
///
/// Two that did would perform each other's tasks, and whoever waits for an outcome with the one would
/// never hear of what the other has done.
final class StoreUse: Sendable {
  /// The name of the queue that runs.
  private let user = Mutex<String?>(nil)

  /// A queue of this name that does not run begins to, on this store.
  ///
  /// - Throws: a ``TaskQueueError`` if another one runs.
  func begin(_ name: String, on store: any Persistence) throws(TaskQueueError) {
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

  /// The queue that has begun does not run any more.
  func end() { user.withLock { $0 = nil } }
}
