public import SteadfastQueue
import Synchronization
public import SystemFoundation

/// A store that wraps another one, and writes all calls and their results to a file.
///
/// ```swift
/// let recorder = try HistoryRecorder(store, to: file)
/// let queue = TaskQueue(persistence: recorder)
/// await queue.register(Parcel.self) { parcel, context in
///   try await recorder.recordAttempt(of: context.id) {
///     try await send(parcel)
///   }
/// }
/// ```
/// Each process writes a file of its own, and ``History`` reads all of these files. The recorder
/// writes one line before each call, and one line with the call's result. So the file of a killed
/// process has everything that the process did. A line has IDs, names of tasks, keys and counts,
/// but no payloads and no values. <doc:ProvingAStore> shows a complete example.
///
/// The store behaves like the underlying one, but is slower. If a line can't be written, the call
/// throws a ``HistoryError``, although it may have taken effect.
///
/// `insertStatement` returns `nil`: if another connection added tasks with such a statement, the
/// history would not contain these tasks.
public final class HistoryRecorder: Persistence {
  private struct State {
    var calls = 0
    var attempts = 0
    /// The latest lease of each task that this store has claimed.
    var leases: [TaskID: UInt64] = [:]
  }

  private let base: any Persistence
  private let process: String
  private let clock: any WallClock
  private let isRefusal: @Sendable (any Error) -> Bool
  private let append: @Sendable (HistoryLine) throws -> Void
  private let state = Mutex(State())

  /// Whether changes to the underlying store never wait.
  public var appliesAtOnce: Bool { base.appliesAtOnce }
  /// The number of tasks that a queue may claim ahead of its workers, as in the underlying store.
  public var claimBatch: Int { base.claimBatch }
  /// How several queues share the underlying store.
  public let sharing: StoreSharing?
  /// Whether all queues on the underlying store have the same clock.
  public let hasOneClock: Bool
  /// The hints of the underlying store.
  public var hints: AsyncStream<Void>? { base.hints }

  /// Makes a store that records the calls to another store and their results.
  ///
  /// - Parameters:
  ///   - base: the underlying store. It must be empty when the first process starts.
  ///   - file: the file to write, which must not exist. Its name, without the extension, is the
  ///     name of the process in the report.
  ///   - clock: the clock for the dates of the lines. The clocks of all recorders of a history must
  ///     agree, even if the queues' clocks don't.
  ///   - isRefusal: returns whether an error of the store means that the call has changed nothing.
  ///     After any other error, the check assumes that the call may have taken effect. By default,
  ///     only a `TaskQueueError` with the code `invalidArgument` means that nothing has changed.
  /// - Throws: A ``HistoryError`` if the file exists or can't be created.
  public convenience init(
    _ base: any Persistence,
    to file: URL,
    clock: some WallClock = ContinuousClock(),
    isRefusal: @escaping @Sendable (any Error) -> Bool = HistoryRecorder.isInvalidArgument
  ) throws {
    let lines = try HistoryFile(file.path)
    let name = file.deletingPathExtension().lastPathComponent
    self.init(base, process: name, clock: clock, isRefusal: isRefusal) { try lines.append($0) }
  }

  package init(
    _ base: any Persistence,
    process: String,
    clock: any WallClock,
    isRefusal: @escaping @Sendable (any Error) -> Bool = HistoryRecorder.isInvalidArgument,
    append: @escaping @Sendable (HistoryLine) throws -> Void
  ) {
    self.base = base
    self.process = process
    self.clock = clock
    self.isRefusal = isRefusal
    self.append = append
    sharing = base.sharing
    hasOneClock = base.hasOneClock
  }

  /// Returns whether an error is a `TaskQueueError` with the code `invalidArgument`.
  public static let isInvalidArgument: @Sendable (any Error) -> Bool = {
    ($0 as? TaskQueueError)?.code == .invalidArgument
  }

  // MARK: Lines

  /// Writes a line with the current date.
  private func write(_ event: (inout State) -> HistoryEvent) throws {
    try state.withLock { state in
      let event = event(&state)
      let date = Int64((clock.date.timeIntervalSince1970 * 1e6).rounded())
      try append(HistoryLine(date: date, process: process, event: event))
    }
  }

  /// Writes a line that announces a call, makes the call, and writes a line with its result.
  private func record<Result>(
    _ makeRequest: (_ call: Int) -> HistoryEvent,
    _ body: () async throws -> Result,
    makeResponse: (_ call: Int, Result) -> HistoryEvent
  ) async throws -> Result {
    var call = 0
    try write { state in
      state.calls += 1
      call = state.calls
      return makeRequest(call)
    }
    let result: Result
    do {
      result = try await body()
    } catch {
      let reason = String("\(error)".prefix(200))
      try write { _ in
        isRefusal(error)
          ? .refused(call: call, reason: reason) : .unanswered(call: call, reason: reason)
      }
      throw error
    }
    try write { _ in makeResponse(call, result) }
    return result
  }
}

// MARK: - Recording by tests

extension HistoryRecorder {
  /// Records the start and the end of an attempt.
  ///
  /// Call this method in the handler, around all of the handler's work.
  /// - Parameters:
  ///   - id: the ID of the task, `context.id`.
  ///   - work: the handler's work.
  /// - Returns: The result of the work.
  /// - Throws: The error of the work; a ``HistoryError`` if the start can't be written. If the end
  ///   can't be written, the history does not contain it, as if the process had been killed.
  nonisolated(nonsending) public func recordAttempt<Result>(
    of id: TaskID,
    _ work: nonisolated(nonsending) () async throws -> Result
  ) async throws -> Result {
    var attempt = 0
    try write { state in
      state.attempts += 1
      attempt = state.attempts
      return .attemptBegan(attempt: attempt, task: id, lease: state.leases[id])
    }
    defer { try? write { _ in .attemptEnded(attempt: attempt) } }
    return try await work()
  }

  /// Records that from now on the test causes no more faults in the store and the processes.
  ///
  /// From then on, all tasks must end within ``History/Expectations/endsWithin``.
  /// - Throws: A ``HistoryError`` if the line can't be written.
  public func recordEndOfFaults() throws { try write { _ in .faultsEnded } }

  /// Records which tasks are in the store.
  ///
  /// Call this method once, at the end, when no queue changes the store any longer. Without it, the
  /// check can't detect a missing task.
  /// - Throws: The underlying store's error; a ``HistoryError`` if the line can't be written.
  public func recordRemainingTasks() async throws {
    var tasks: [HistoryTask] = []
    var last: TaskID?
    while true {
      let page = try await base.tasks(matching: TaskFilter(queue: nil), after: last, limit: 1000)
      guard let end = page.last else { break }
      tasks += page.map { HistoryTask(recording: $0, state: $0.state) }
      last = end.id
    }
    try write { _ in .remaining(tasks: tasks) }
  }
}

// MARK: - The store

extension HistoryRecorder {
  /// Opens the underlying store.
  ///
  /// - Throws: The underlying store's error; a ``HistoryError``.
  public func open() async throws {
    try write { _ in .opening }
    try await base.open()
  }

  /// Applies a batch of changes to the underlying store.
  ///
  /// - Throws: The underlying store's error; a ``HistoryError``.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await record {
      .asked(call: $0, changes: batch.map { HistoryChange(recording: $0) })
    } _: {
      try await base.apply(batch, durability: durability)
    } makeResponse: {
      .answered(call: $0, outcomes: $1.map { HistoryOutcome(recording: $0) })
    }
  }

  /// Claims the first available tasks of the underlying store.
  ///
  /// - Throws: The underlying store's error; a ``HistoryError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await record {
      .claiming(call: $0, seconds: request.leaseDuration.map { $0 / .seconds(1) })
    } _: {
      try await base.claim(request)
    } makeResponse: { (call: Int, claim: Claim) in
      .granted(call: call, tasks: claim.tasks.map { HistoryGrant(recording: $0) })
    }
    state.withLock { state in
      for task in claim.tasks { state.leases[task.lease.id] = task.lease.token }
    }
    return claim
  }

  /// Returns the tasks of the underlying store that match a filter.
  ///
  /// - Throws: The underlying store's error.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
  }

  /// Returns the number of tasks of the underlying store that match a filter.
  ///
  /// - Throws: The underlying store's error.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  /// Returns whether any task of the underlying store matches a filter.
  ///
  /// - Throws: The underlying store's error.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(filter)
  }

  /// Returns the census of the underlying store.
  ///
  /// - Throws: The underlying store's error.
  public func census(at now: Date) async throws -> TaskCensus {
    try await base.census(at: now)
  }

  /// Returns the bytes that the underlying store has under a name.
  ///
  /// - Throws: The underlying store's error.
  public func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: name)
  }

  /// Returns the values of the underlying store whose names begin with a prefix.
  ///
  /// - Throws: The underlying store's error.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix)
  }

  /// Returns what a task of the underlying store remembers.
  ///
  /// - Throws: The underlying store's error.
  public func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }

  /// Closes the underlying store.
  ///
  /// - Throws: The underlying store's error.
  public func close() async throws { try await base.close() }

  /// Destroys the underlying store.
  ///
  /// - Throws: The underlying store's error.
  public func destroy() async throws { try await base.destroy() }
}
