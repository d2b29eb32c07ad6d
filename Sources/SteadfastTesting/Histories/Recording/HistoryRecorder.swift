public import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A store that writes to a file what it is asked and what it answers, in front of another store.
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
/// Each process writes a file of its own, and ``History`` reads them all. A line is handed to the
/// system before the call that it announces begins, and after the call has answered. So a process
/// that is killed leaves everything that it did. A line holds IDs, names of tasks, keys and counts,
/// but no payload and no value. <doc:ProvingAStore> shows the whole.
///
/// The store behaves as the underlying one does, more slowly. If a line can't be written, the call
/// throws a ``HistoryError``. Then the call may have been carried out.
///
/// It gives no statement with which another connection adds tasks (`insertStatement`), since a
/// history would know nothing of these tasks.
public final class HistoryRecorder: Persistence {
  private struct State {
    var calls = 0
    var attempts = 0
    /// The newest lease of each task that was handed out here.
    var leases: [TaskID: UInt64] = [:]
  }

  private let base: any Persistence
  private let process: String
  private let clock: any WallClock
  private let isRefusal: @Sendable (any Error) -> Bool
  private let append: @Sendable (HistoryLine) throws -> Void
  private let state = Mutex(State())

  /// Whether the underlying store waits for nothing.
  public var appliesAtOnce: Bool { base.appliesAtOnce }
  /// That of the store.
  public var claimBatch: Int { base.claimBatch }
  /// How several queues share the underlying store.
  public let sharing: StoreSharing?
  /// That of the store.
  public let hasOneClock: Bool
  /// Those of the underlying store.
  public var hints: AsyncStream<Void>? { base.hints }

  /// Makes a store that records what another one does.
  ///
  /// - Parameters:
  ///   - base: the underlying store. It is empty when the first process begins.
  ///   - file: the file to write, which must not exist. Its name, without the extension, is the
  ///     name of the process in the report.
  ///   - clock: the clock of the lines. All recorders of a history use clocks that agree, also if
  ///     the queues' clocks don't.
  ///   - isRefusal: returns whether an error of the store means that the call has changed nothing.
  ///     Of any other error, the check takes it that the call may have been carried out. By default
  ///     only a `TaskQueueError` with the code `invalidArgument` means it.
  /// - Throws: A ``HistoryError`` if the file exists, or can't be made.
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

  /// Writes a line with the present date.
  private func write(_ event: (inout State) -> HistoryEvent) throws {
    try state.withLock { state in
      let event = event(&state)
      let date = Int64((clock.date.timeIntervalSince1970 * 1e6).rounded())
      try append(HistoryLine(date: date, process: process, event: event))
    }
  }

  /// Makes a call between the line that announces it and the line with its answer.
  private func record<Answer>(
    _ question: (_ call: Int) -> HistoryEvent,
    _ body: () async throws -> Answer,
    answer: (_ call: Int, Answer) -> HistoryEvent
  ) async throws -> Answer {
    var call = 0
    try write { state in
      state.calls += 1
      call = state.calls
      return question(call)
    }
    let result: Answer
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
    try write { _ in answer(call, result) }
    return result
  }
}

// MARK: - What a test says

extension HistoryRecorder {
  /// Records when an attempt begins and ends.
  ///
  /// Call it in the handler, around all of its work.
  /// - Parameters:
  ///   - id: the task, `context.id`.
  ///   - work: what the handler does.
  /// - Returns: What the work returns.
  /// - Throws: What the work throws; a ``HistoryError`` if the beginning can't be written. If the
  ///   end can't be, the history has none, as if the process had been killed.
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

  /// Records that from now on nothing is done to the store and the processes.
  ///
  /// Within some time from here, everything ends (``History/Expectations/endsWithin``).
  /// - Throws: A ``HistoryError`` if it can't be written.
  public func recordEndOfFaults() throws { try write { _ in .faultsEnded } }

  /// Records which tasks are in the store.
  ///
  /// Call it once, at the end, when no queue changes anything. Without it, no check can tell that a
  /// task is missing.
  /// - Throws: What the underlying store throws; a ``HistoryError`` if it can't be written.
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
  /// - Throws: What the underlying store throws; a ``HistoryError``.
  public func open() async throws {
    try write { _ in .opening }
    try await base.open()
  }

  /// Applies a batch of changes to the underlying store.
  ///
  /// - Throws: What the underlying store throws; a ``HistoryError``.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await record {
      .asked(call: $0, changes: batch.map { HistoryChange(recording: $0) })
    } _: {
      try await base.apply(batch, durability: durability)
    } answer: {
      .answered(call: $0, outcomes: $1.map { HistoryOutcome(recording: $0) })
    }
  }

  /// Claims the first available tasks of the underlying store.
  ///
  /// - Throws: What the underlying store throws; a ``HistoryError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await record {
      .claiming(call: $0, seconds: request.leaseDuration.map { $0 / .seconds(1) })
    } _: {
      try await base.claim(request)
    } answer: { (call: Int, claim: Claim) in
      .granted(call: call, tasks: claim.tasks.map { HistoryGrant(recording: $0) })
    }
    state.withLock { state in
      for task in claim.tasks { state.leases[task.lease.id] = task.lease.token }
    }
    return claim
  }

  /// Returns the tasks of the underlying store that match a filter.
  ///
  /// - Throws: What the underlying store throws.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit)
  }

  /// Returns the number of tasks of the underlying store that match a filter.
  ///
  /// - Throws: What the underlying store throws.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  /// Returns whether any task of the underlying store matches a filter.
  ///
  /// - Throws: What the underlying store throws.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(filter)
  }

  /// Returns the bytes that the underlying store holds under a name.
  ///
  /// - Throws: What the underlying store throws.
  public func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: name)
  }

  /// Returns what a task of the underlying store remembers.
  ///
  /// - Throws: What the underlying store throws.
  public func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }

  /// Closes the underlying store.
  ///
  /// - Throws: What the underlying store throws.
  public func close() async throws { try await base.close() }

  /// Destroys the underlying store.
  ///
  /// - Throws: What the underlying store throws.
  public func destroy() async throws { try await base.destroy() }
}
