import Synchronization

/// What must hold when tasks are performed (``TaskOptions/requires``).
extension TaskQueue {
  /// Tells the queue whether a condition holds.
  ///
  /// A condition about which the queue was told nothing does not hold. When a condition begins to
  /// hold, workers look for the tasks that waited for it. When it ends, no attempt at a task that
  /// requires it begins any more after the call has returned. Attempts that are under way go on. An
  /// attempt is under way as soon as a worker has taken its task, which is before the handler is
  /// called; for a recurring task, the worker looks into the store in between.
  ///
  /// ```swift
  /// await queue.setCondition("charging", holds: battery.isCharging)
  /// ```
  /// An app can make it a condition that it is active: it calls this with `true` when it becomes
  /// active, and with `false` before it resigns. What the queue is told lasts as long as the queue
  /// object. If the calling Swift task is cancelled, the queue is told all the same, but a task
  /// that was claimed already may still begin.
  public func setCondition(_ condition: TaskCondition, holds: Bool) async {
    await tell(condition, holds: holds)
  }

  /// Registers the monitor that tells, while the queue runs, whether a condition holds.
  ///
  /// A run begins when each monitor has told its condition for the first time. A monitor that is
  /// registered for the same condition later takes its place. A monitor whose values end tells
  /// nothing any more: what it told last stays.
  ///
  /// ```swift
  /// await queue.register(NetworkMonitor(), for: .network)
  /// try await queue.enqueue(
  ///   Upload(file),
  ///   options: TaskOptions(requires: [.network])
  /// )
  /// ```
  /// - Parameters:
  ///   - monitor: what tells whether the condition holds.
  ///   - condition: the condition.
  ///   - interruptsTasks: whether attempts at tasks that require the condition are cut short when
  ///     it ends. The handler's Swift task is then cancelled. If the handler throws, the task waits
  ///     for the condition, and no retry is counted. By default such attempts go on.
  public func register(
    _ monitor: some ConditionMonitor,
    for condition: TaskCondition,
    interruptsTasks: Bool = false
  ) {
    upkeep.withLock {
      $0.conditions.register(monitor, condition, interruptsTasks: interruptsTasks)
    }
    signals.monitors.signal()
  }

  /// Tells the queue whether a condition holds, as its caller says or a monitor.
  ///
  /// - Returns: Whether the monitor is still the one that is registered.
  @discardableResult
  private nonisolated func tell(
    _ condition: TaskCondition,
    holds: Bool,
    by registration: ConditionState.Registration? = nil
  ) async -> Bool {
    let (isCurrent, isNew) = upkeep.withLock { upkeep in
      if let registration, !upkeep.conditions.isCurrent(registration) { return (false, false) }
      return (true, upkeep.conditions.set(condition, holds: holds))
    }
    guard isCurrent else { return false }
    if holds {
      guard isNew else { return true }
      machine.withLock { $0.workArrived() }
      signals.workers.signalAll()
      return true
    }
    // Another caller may have said the same, and wait for the claim still.
    await putBackUnbegun { $0.conditions.contains(condition) }
    guard isNew, registration?.interruptsTasks == true else { return true }
    for worker in machine.withLock({ $0.releaseAttempts(requiring: condition) }) {
      signals.interrupts[worker].signal()
    }
    return true
  }
}

// MARK: - Monitors

extension TaskQueue {
  /// Follows the registered monitors until cancelled.
  nonisolated func followMonitors() async {
    await withDiscardingTaskGroup { group in
      var last = 0
      while !Task.isCancelled {
        for registration in upkeep.withLock({ $0.conditions.registrations(after: last) }) {
          last = registration.number
          group.addTask { await self.follow(registration) }
        }
        await signals.monitors.wait()
      }
      group.cancelAll()
    }
  }

  private nonisolated func follow(_ registration: ConditionState.Registration) async {
    for await holds in registration.monitor.values() {
      guard await tell(registration.condition, holds: holds, by: registration) else { break }
      noteTold(registration)
    }
    noteTold(registration)
  }

  private nonisolated func noteTold(_ registration: ConditionState.Registration) {
    upkeep.withLock { $0.conditions.hasTold(registration) }
    signals.conditionsTold.resumeAll(with: .success(()))
  }

  /// Waits until each monitor has told its condition, the run is to end, or until cancelled.
  nonisolated func waitForMonitors() async {
    while upkeep.withLock({ $0.conditions.awaitsMonitors }),
      !machine.withLock({ $0.isStopping }), !Task.isCancelled
    {
      // Cancelled: the loop ends, and so do the workers.
      try? await signals.conditionsTold.wait {
        let awaits = upkeep.withLock { $0.conditions.awaitsMonitors }
        return awaits && !machine.withLock { $0.isStopping } ? nil : .success(())
      }
    }
  }
}
