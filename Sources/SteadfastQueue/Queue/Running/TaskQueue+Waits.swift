import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Describes to a test what it waits for, when the wait may never end.
extension TaskQueue {
  /// Describes the task whose outcome is awaited, and what keeps it from ending.
  nonisolated func whyIsAwaited(_ id: TaskID, _ clock: any WallClock) async -> String {
    // Only a store in memory answers regardless of what else waits.
    let isInMemory = store is InMemoryStore
    let record = isInMemory ? try? await record(of: id) : nil
    let task = record.map { "'\($0.name)' \(id)" } ?? "\(id)"
    return
      "the outcome of the task \(task) in the queue '\(name)'\(obstacle(to: id, record, clock))"
  }

  private nonisolated func obstacle(
    to id: TaskID,
    _ record: TaskRecord?,
    _ clock: any WallClock
  ) -> String {
    let (mode, pause, isPerformed, performing) = machine.withLock { machine in
      (machine.mode, machine.pause, machine.isUnsettled(id), machine.performing)
    }
    if mode == nil { return ", which does not run: call run(), runAvailable() or drain(_:)" }
    if let pause { return ", which is \(pause)" }
    if let record {
      if record.state == .parked { return ", which is parked: \(record.lastError ?? "")" }
      if record.state == .paused { return ", which is paused: call resume(_:) with its ID" }
      if handlers[record.name] == nil {
        return ": no handler is registered for '\(record.name)'"
      }
      if record.availableDate > now {
        let isSame = (clock as AnyObject) === (self.time.clock as AnyObject)
        return isSame
          ? ", which waits for its date"
          : ", which waits for its date on another clock: give the queue the virtual time's"
      }
    }
    if isPerformed {
      return ", whose handler has not ended: it waits for itself, or for what never comes"
    }
    guard performing >= configuration.workerCount else { return "" }
    return """
      , which can't begin: the queue performs \(performing), as many as it may \
      (maxConcurrentTasks), and one of them may be waiting for it
      """
  }

  /// Describes what keeps a run from ending.
  nonisolated var whyRunGoesOn: String {
    let (pause, hasEnded, performing) = machine.withLock { machine in
      (machine.pause, machine.hasEnded, machine.performing)
    }
    let tasks =
      performing == 1 ? "a task whose handler has" : "\(performing) tasks whose handlers have"
    if hasEnded, performing > 0 {
      return """
        the end of the queue '\(name)', which is being shut down and performs \(tasks) not ended
        """
    }
    if performing > 0 {
      return "the end of the run of the queue '\(name)', which performs \(tasks) not ended"
    }
    return """
      the end of the run of the queue '\(name)', which is \(pause == nil ? "idle" : "paused"): call \
      shutDown(), or cancel the task that runs it
      """
  }
}

extension WorkMachine {
  /// How the queue is paused, and how that ends; `nil` if it is not paused.
  fileprivate var pause: String? {
    guard isPaused else { return nil }
    return isPausedByStore
      ? "paused in its store: call resume(durability:)" : "paused: call resume()"
  }
}
