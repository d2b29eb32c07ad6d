import Synchronization

extension TaskQueue {
  /// Waits until there is nothing to do: no attempt is under way, how the last ones ended is stored,
  /// and no task is available that the queue may perform.
  ///
  /// ```swift
  /// async let run: Void = queue.run()
  /// try await queue.enqueue(contentsOf: uploads)
  /// try await queue.waitUntilIdle()
  /// ```
  /// What was added before the call is performed first. Tasks that wait for a later date, a retry for
  /// example, are not waited for; nor are those that are paused, whose name is, or that have no
  /// handler. A queue that is paused is idle when its attempts have ended. One that does not run does
  /// nothing, and is waited for until it has run and found nothing more to do. By the time it
  /// returns, a task may have been added again, or another become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled: the queue goes on. A
  ///   ``TaskQueueError`` with the code ``TaskQueueError/Code/shutDown`` if the queue was shut down,
  ///   with the code ``TaskQueueError/Code/waitsForItself`` if one of its handlers calls it. What
  ///   keeps the store from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await open()
    if let task = callingTask {
      throw TaskQueueError(
        .waitsForItself,
        "the handler of the task \(task) waits until its queue '\(name)' is idle, which it is when "
          + "the handler has ended"
      )
    }
    try await RealWork.waiting({ _ in self.whyNotIdle }) {
      // What a claim in flight has looked at may be older than the call.
      let claimCount = machine.withLock { $0.claimCount }
      while try await !isIdle(afterClaim: claimCount) {}
    }
  }

  /// Waits for the next step that may make the queue idle.
  ///
  /// Whether it is.
  private nonisolated func isIdle(afterClaim seen: Int) async throws -> Bool {
    try await idleWatch.wait {
      machine.withLock { $0.idleness(afterClaim: seen) } == .busy ? nil : .success(())
    }
    let (idleness, claimCount) = machine.withLock { machine in
      (machine.idleness(afterClaim: seen), machine.claimCount)
    }
    if idleness == .unknown {
      wake.fire()
      try await idleWatch.wait {
        machine.withLock { machine in
          if machine.hasEnded { return .failure(Self.shutDownError) }
          let hasChanged =
            machine.claimCount > claimCount || machine.idleness(afterClaim: seen) != .unknown
          return hasChanged ? .success(()) : nil
        }
      }
    }
    return idleness == .idle
  }

  private nonisolated var whyNotIdle: String {
    let performing = machine.withLock { $0.performing }
    return performing > 0
      ? "that the queue '\(name)' is idle, which performs tasks whose handlers have not ended"
      : "that the queue '\(name)' is idle, which does not run"
  }
}
