import Synchronization

/// Pauses that the store holds, for the queue in every process that uses it.
extension TaskQueue {
  /// Pauses the queue, in every process that uses its store, until ``resume(durability:)``.
  ///
  /// The pause is stored, so it outlasts the process: a queue that is made on the store later is
  /// paused too. When the call returns, no attempt begins in this queue, as with ``pause()``.
  /// Queues in other processes follow when they look at the store the next time: at a hint
  /// (``Persistence/hints``), or after a ``StoreSharing/pollInterval``. In a ``TaskQueueGroup``,
  /// the pause is that of this queue alone (``TaskQueueGroup/pause(durability:)``).
  ///
  /// A queue has two pauses: the one in memory of ``pause()``, and the one in its store. It
  /// performs tasks while neither holds. Each is ended by its own call: ``resume()`` leaves a
  /// stored pause as it is.
  ///
  /// If the calling Swift task is cancelled, the pause is stored all the same, but the waiting for
  /// attempts that are about to begin ends at once.
  ///
  /// - Parameter durability: what the pause survives once the call has returned.
  /// - Throws: The same errors as ``open()``; what the store throws. It is then unknown whether the
  ///   pause is stored. This queue goes on as before until it reads the store again, when it runs
  ///   again for instance.
  ///   If the call is cancelled while another one of these calls waits for a store that is gone, it
  ///   throws `CancellationError`, and nothing is stored.
  public nonisolated func pause(durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.isWhole = true }
    await holdBack()
    await waitForLastAttempts()
  }

  /// Undoes ``pause(durability:)``, whichever process has called it.
  ///
  /// Queues in other processes follow when they look at the store the next time. Names that are
  /// paused stay paused, and so does a queue that is paused in memory (``pause()``).
  ///
  /// - Parameter durability: what the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.isWhole = false }
  }

  /// Pauses a name, in every process that uses the store, until ``resume(name:durability:)``.
  ///
  /// The pause is stored, as with ``pause(durability:)``. When the call returns, no task of the
  /// name is claimed by this queue, as with ``pause(name:)``, and ``pausedNames`` has the name. A
  /// store has room for the names of some thousand pauses: 65,536 bytes.
  ///
  /// - Parameters:
  ///   - name: the name that the tasks were enqueued under.
  ///   - durability: what the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func pause(name: String, durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.names.insert(name) }
    await putBackUnbegun { $0.name == name }
  }

  /// Undoes ``pause(name:durability:)``, whichever process has called it.
  ///
  /// Queues in other processes follow when they look at the store the next time. A name that is
  /// paused in memory (``pause(name:)``) stays paused in this queue.
  ///
  /// - Parameters:
  ///   - name: the name that was paused.
  ///   - durability: what the end of the pause survives once the call has returned.
  /// - Throws: The same errors as ``pause(durability:)``.
  public nonisolated func resume(name: String, durability: Durability) async throws {
    try await changeStoredPause(durability) { $0.names.remove(name) }
  }

  // MARK: Following the store

  /// Reads what the store says is paused, and follows it.
  ///
  /// - Parameter again: whether to read it also if this queue has read it before.
  /// - Throws: What the store throws.
  nonisolated func readStoredPause(again: Bool = true) async throws {
    let news = try await havingTurnAtPause { () -> PauseNews? in
      // Of many first calls, one reads it.
      if !again, signals.hasReadPause.load(ordering: .acquiring) { return nil }
      return follow(try StoredPause(try await store.value(named: StoredPause.valueName)))
    }
    if let news { await putBack(because: news) }
  }

  /// Does what `readStoredPause()` does; a store that fails stops the run.
  nonisolated func followStoredPause() async {
    do {
      try await readStoredPause()
    } catch is CancellationError where Task.isCancelled {
      // Another call has its turn. The next run reads what is paused.
    } catch {
      fail(error, to: "say what is paused")
    }
  }

  private nonisolated func changeStoredPause(
    _ durability: Durability,
    _ change: (inout StoredPause) -> Void
  ) async throws {
    try await open()
    let news = try await havingTurnAtPause {
      var changed = StoredPause()
      try await setValue(named: StoredPause.valueName, durability) { bytes in
        changed = try StoredPause(bytes)
        change(&changed)
        return try changed.bytes
      }
      return follow(changed)
    }
    await putBack(because: news)
  }

  /// Performs the body, which reads the stored pause, when it has its turn.
  ///
  /// - Throws: What the body throws; `CancellationError` when the caller is cancelled before its
  ///   turn, and the store is gone.
  private nonisolated func havingTurnAtPause<Result>(
    _ body: () async throws -> Result
  ) async throws -> Result {
    try await signals.pauseTurns.begin([StoredPause.valueName])
    defer { signals.pauseTurns.end([StoredPause.valueName]) }
    let result = try await body()
    signals.hasReadPause.store(true, ordering: .releasing)
    return result
  }

  /// Puts back claimed tasks that may not begin any more.
  ///
  /// No other call waits for this: it may take long.
  private nonisolated func putBack(because news: PauseNews) async {
    if news.isPaused { await holdBack() }
    guard !news.pausedNames.isEmpty else { return }
    await putBackUnbegun { news.pausedNames.contains($0.name) }
  }

  /// What a queue has begun to follow.
  private struct PauseNews {
    /// Whether the queue is paused now, and was not before.
    var isPaused: Bool
    /// The names that are paused now, and were not before.
    var pausedNames: Set<String>
  }

  /// Begins to follow what the store says is paused.
  private nonisolated func follow(_ pause: StoredPause) -> PauseNews {
    let (paused, resumed) = handlers.setStoredPauses(pause.names)
    let isNew = machine.withLock { machine in
      if !resumed.isEmpty { machine.workArrived() }
      return machine.setPausedByStore(pause.isWhole)
    }
    if isNew, !pause.isWhole { signals.pauseProgress.resumeAll(with: .success(())) }
    if isNew && !pause.isWhole || !resumed.isEmpty { signals.workers.signalAll() }
    return PauseNews(isPaused: isNew && pause.isWhole, pausedNames: paused)
  }
}
