import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Small values that an application holds in a queue's store.
extension TaskQueue {
  /// Returns the bytes that the store holds under a name.
  ///
  /// ```swift
  /// let bytes = try await queue.value(named: "cursor")
  /// let page = bytes.map { String(decoding: $0, as: UTF8.self) }
  /// ```
  /// - Parameter name: the name; see ``setValue(_:named:durability:)``.
  /// - Returns: The bytes; `nil` if there are none.
  /// - Throws: A ``TaskQueueError`` if the name is one of the package's own; the same errors as
  ///   ``open()``; what the store throws.
  public nonisolated func value(named name: String) async throws -> [UInt8]? {
    try Self.checkIsUsers(name)
    try await open()
    return try await store.value(named: name)
  }

  /// Sets the bytes that the store holds under a name, whatever they were.
  ///
  /// Values are for what a few tasks share and what must outlast the process, such as how far a
  /// synchronisation has come. All queues on the store have the same values. They stay until they
  /// are removed, or the queue is destroyed. They are stored as they are, also if the store seals
  /// payloads (``Persistence/sealingPayloads(with:acceptsPlain:)``).
  ///
  /// - Parameters:
  ///   - value: the bytes, at most 65,536; `nil` removes the value.
  ///   - name: a name of 1 to 1,024 bytes of UTF-8, without a NUL. Two names are the same if their
  ///     bytes are. Names that begin with `steadfast.` are the package's own.
  ///   - durability: what the value survives once the call has returned.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if the
  ///   name or the value is not allowed; the same errors as ``open()``; what the store throws. In
  ///   that case, it may be unknown whether the value is stored.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    durability: Durability = .durable
  ) async throws {
    try Self.checkIsUsers(name)
    try await open()
    try await setValue(named: name, durability) { _ in value }
  }

  /// Sets the bytes that the store holds under a name, if they are the ones that the caller
  /// expects.
  ///
  /// No other caller, in any process, comes between the comparison and the setting. So of several
  /// callers that replace the same bytes, one gets `true`:
  ///
  /// ```swift
  /// // The first one leads, until it removes the value.
  /// let isLeader = try await queue.setValue(me, named: "leader", replacing: nil)
  /// ```
  /// - Parameters:
  ///   - value: the bytes, as for ``setValue(_:named:durability:)``.
  ///   - name: the name, likewise.
  ///   - expected: the bytes that must be there; `nil` for none.
  ///   - durability: what the value survives once the call has returned.
  /// - Returns: Whether the value was set. If not, other bytes are there, and nothing has changed.
  /// - Throws: The same errors as ``setValue(_:named:durability:)``.
  public nonisolated func setValue(
    _ value: [UInt8]?,
    named name: String,
    replacing expected: [UInt8]?,
    durability: Durability = .durable
  ) async throws -> Bool {
    try Self.checkIsUsers(name)
    try await open()
    return try await replaceValue(named: name, expected, by: value, durability)
  }

  // MARK: Comparing

  /// Sets a value to what the function makes of the present one, however often that changes.
  nonisolated func setValue(
    named name: String,
    _ durability: Durability,
    _ next: ([UInt8]?) throws -> [UInt8]?
  ) async throws {
    var retries = 0
    for _ in 0..<Self.mostRefusals {
      let old = try await store.value(named: name)
      let new = try next(old)
      do {
        if try await replaceValue(named: name, old, by: new, durability) { return }
      } catch {
        // It may have been stored. What the next look finds is the present value in any case.
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.comparesWrongly(store, "the value '\(name)'")
  }

  /// Sets a value if it is the expected one.
  ///
  /// The change is a batch of its own: a comparison that fails leaves no change of its batch.
  private nonisolated func replaceValue(
    named name: String,
    _ expected: [UInt8]?,
    by value: [UInt8]?,
    _ durability: Durability
  ) async throws -> Bool {
    let change = TaskChange.setValue(named: name, from: expected, to: value)
    let results = try await persist([change], durability)
    switch results[0] {
    case .done: return true
    case .valueDiffers: return false
    case .doneWithConsequences, .replaced, .superseded, .unmetDependency, .duplicate,
      .identityTaken, .stale, .batchRefused:
      throw UnusableAnswer(results: results, to: 1)
    }
  }

  /// Refuses a name that the package uses itself.
  private static func checkIsUsers(_ name: String) throws(TaskQueueError) {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the name of the value '\(name)' begins with 'steadfast.', as the package's own do; give it "
        + "another one"
    )
  }
}

/// What is paused for all queues on a store: a value of the store.
///
/// The value is a JSON object, or is not there if nothing is paused. Its keys have one order, so
/// that what is the same has the same bytes.
struct StoredPause: Sendable, Equatable {
  /// The name of the value.
  static let valueName = "steadfast.pause"

  /// Whether everything is paused.
  var isWhole = false
  /// The names whose tasks are paused.
  var names: Set<String> = []

  init() {}

  /// Reads a value; `nil` says that nothing is paused.
  ///
  /// - Throws: A ``TaskQueueError`` if the value makes no sense.
  init(_ bytes: [UInt8]?) throws(TaskQueueError) {
    guard let bytes else { return }
    do {
      let fields = try JSONDecoder().decode(Fields.self, from: Data(bytes))
      isWhole = fields.queue ?? false
      names = Set(fields.names ?? [])
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "the value '\(Self.valueName)' of the store does not say what is paused: this version can't "
          + "read it, and takes nothing for resumed",
        underlying: error
      )
    }
  }

  /// The bytes of the value; `nil` if nothing is paused.
  var bytes: [UInt8]? {
    get throws {
      guard isWhole || !names.isEmpty else { return nil }
      let fields = Fields(
        names: names.isEmpty ? nil : names.sorted(),
        queue: isWhole ? true : nil
      )
      return try StableJSON.encode(fields)
    }
  }

  private struct Fields: Codable {
    var names: [String]?
    var queue: Bool?
  }
}

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
