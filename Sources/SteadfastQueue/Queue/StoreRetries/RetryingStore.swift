import SteadfastRetry
import Synchronization
import SystemFoundation

/// A store that calls another store, and retries calls that throw a transient error.
final class RetryingStore: StoreWrapper {
  let base: any Persistence
  let retryPolicy: StoreRetryPolicy
  /// For each new task that is being inserted: whether a claim has already returned the task.
  ///
  /// The store may throw an error although it has inserted a task. The task may be performed and
  /// removed before the call is retried. Then the retry must not insert the task again.
  private let insertions = Mutex<[TaskID: Bool]>([:])

  init(_ base: any Persistence, _ retryPolicy: StoreRetryPolicy) {
    self.base = base
    self.retryPolicy = retryPolicy
  }

  func open() async throws { try await retrying(.open) { try await base.open() } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await send(batch, durability).outcomes
  }

  /// Applies a batch, and also returns whether it was sent to the store more than once.
  func send(
    _ batch: [TaskChange],
    _ durability: Durability,
    _ call: StoreRetryPolicy.Call = .other
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    let new = batch.compactMap(\.newTaskID)
    if !new.isEmpty { insertions.withLock { for id in new { $0[id] = false } } }
    defer { if !new.isEmpty { insertions.withLock { for id in new { $0[id] = nil } } } }
    // A change that compares a value can't be retried: if the first try has set the value, the
    // retry finds a different one, and is refused.
    let isRepeatable = !batch.contains(where: \.comparesValue)
    var retries = 0
    while true {
      do {
        let outcomes = try await sendOnce(batch, durability, isFirst: retries == 0)
        return (outcomes, retries > 0)
      } catch {
        guard isRepeatable,
          await retryPolicy.waitToRetry(after: error, retries: retries, call)
        else { throw error }
        retries += 1
      }
    }
  }

  /// Sends a batch to the store once.
  ///
  /// If this is not the first try, leaves out new tasks that a claim has already returned.
  private func sendOnce(
    _ batch: [TaskChange],
    _ durability: Durability,
    isFirst: Bool
  ) async throws -> [ChangeOutcome] {
    let claimed = isFirst ? [] : Set(insertions.withLock { $0.filter(\.value) }.keys)
    func isStored(_ change: TaskChange) -> Bool { change.newTaskID.map(claimed.contains) ?? false }
    guard !claimed.isEmpty else { return try await base.apply(batch, durability: durability) }
    let rest = batch.filter { !isStored($0) }
    let outcomes = rest.isEmpty ? [] : try await base.apply(rest, durability: durability)
    guard outcomes.count == rest.count else { return outcomes }
    var next = outcomes.makeIterator()
    return batch.compactMap { isStored($0) ? .done : next.next() }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await retrying(.claim) { try await base.claim(request) }
    if !claim.tasks.isEmpty {
      insertions.withLock { insertions in
        guard !insertions.isEmpty else { return }
        for task in claim.tasks where insertions[task.lease.id] != nil {
          insertions[task.lease.id] = true
        }
      }
    }
    return claim
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await retrying { try await base.tasks(matching: filter, after: id, limit: limit) }
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await retrying { try await base.count(matching: filter) }
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await retrying { try await base.contains(filter) }
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await retrying { try await base.value(named: name) }
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await retrying { try await base.values(prefix: prefix) }
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    try await retrying { try await base.memory(of: id) }
  }

  private func retrying<Value: Sendable>(
    _ kind: StoreRetryPolicy.Call = .other,
    _ call: () async throws -> Value
  ) async throws -> Value {
    var retries = 0
    while true {
      do {
        return try await call()
      } catch {
        guard await retryPolicy.waitToRetry(after: error, retries: retries, kind) else {
          throw error
        }
        retries += 1
      }
    }
  }
}

extension Persistence {
  /// Whether an error of the store may be transient, so that calls need a ``RetryingStore``.
  ///
  /// The stores in memory and in a file have no such errors.
  var mayFailTransiently: Bool {
    switch self {
    case let store as any StoreWrapper: store.base.mayFailTransiently
    case let store as any UnsharedStore: store.hasTransientErrors
    // A store that applies changes at once uses no file or database that could be unavailable.
    default: !appliesAtOnce
    }
  }
}

extension TaskChange {
  fileprivate var comparesValue: Bool { if case .setValue = self { true } else { false } }
}

/// Decides whether a queue retries a call of its store, and waits before the retry.
///
/// A call is retried as long as it throws a transient error, until the caller is cancelled. What
/// else ends the retries depends on the kind of the call (``Call``).
final class StoreRetryPolicy: Sendable {
  /// The kinds of calls, which differ in when their retries end.
  enum Call {
    /// Opens the store; not retried once the queue is shut down.
    case open
    /// Claims tasks; not retried once the run is about to end.
    case claim
    /// A call that the next run can make as well; not retried once the run is about to end.
    case bestEffort
    /// Stores what a handler has done, in a Swift task that is not cancelled with the run; not
    /// retried once the run is cancelled or its attempts are cut short.
    case attempt
    /// Any other call; not retried once the run's attempts are cut short.
    case other
  }

  /// What is about to end.
  struct Stop: Sendable {
    /// Whether the run is about to end, so that nothing more starts.
    var isStopping = false
    var isShutDown = false
    /// Whether the run's attempts are cut short, and calls must stop waiting for the store.
    var isCutShort = false
  }

  private struct State: Sendable {
    var stop = Stop()
    var isRunCancelled = false
    var retryCount = 0
    var generator: SplitMix64
  }

  /// Whether calls of the kind `other` in the current Swift task count as `bestEffort`.
  @TaskLocal static var isBestEffort = false

  private let time: QueueTime
  private let events: EventHub
  private let availability: StoreAvailability
  private let errorText: @Sendable (any Error) -> String
  private let state: Mutex<State>
  private let stops = Waiters<Void>()

  /// Delays from 50 ms to 5 s, which is short compared with a lease.
  ///
  /// Because of the jitter, several queues don't retry at the same time.
  private static let backoff = Backoff.exponential(from: .milliseconds(100), multiplier: 2)
    .jittered(.proportional(0.5)).capped(at: .seconds(5))

  init(
    _ configuration: TaskQueueConfiguration,
    _ time: QueueTime,
    _ events: EventHub,
    _ availability: StoreAvailability
  ) {
    self.time = time
    self.events = events
    self.availability = availability
    errorText = configuration.errorText
    state = Mutex(State(generator: configuration.randomness.makeGenerator()))
  }

  var retryCount: Int { state.withLock { $0.retryCount } }

  func beginRun() { state.withLock { $0.isRunCancelled = false } }

  /// Records that the run was cancelled, and ends the waits of its attempts.
  func markRunCancelled() {
    state.withLock { $0.isRunCancelled = true }
    stops.resumeAll(with: .success(()))
  }

  /// Records what is about to end, as `stop` returns it, and ends the waits that this affects.
  ///
  /// `stop` is called while the state is locked. So if several callers call this at the same time,
  /// the last of them can't record an older state.
  func updateStop(_ stop: () -> Stop) {
    state.withLock { $0.stop = stop() }
    stops.resumeAll(with: .success(()))
  }

  /// Waits before the retry of a call, if its error is transient.
  ///
  /// - Parameters:
  ///   - error: the error of the call.
  ///   - retries: how often the call has already been retried.
  ///   - call: the kind of the call.
  /// - Returns: Whether to retry the call.
  func waitToRetry(after error: any Error, retries: Int, _ call: Call) async -> Bool {
    let call = call == .other && Self.isBestEffort ? .bestEffort : call
    guard error.isTransientFailure, !Task.isCancelled, !stopsRetrying(call) else { return false }
    let attempt = RetryAttempt(number: retries + 1)
    let delay = state.withLock { Self.backoff.delay(after: attempt, using: &$0.generator) }
    events.post(
      .storeUnavailable(
        reason: errorText(error),
        retryDate: time.clock.date.storableDate(after: delay)
      )
    )
    await availability.markUnavailable {
      await withTaskGroup { group in
        group.addTask { try? await self.time.wait(for: delay) }
        group.addTask { await self.waitUntilRetriesStop(of: call) }
        await group.next()
        group.cancelAll()
      }
    }
    guard !Task.isCancelled, !stopsRetrying(call) else { return false }
    state.withLock { $0.retryCount += 1 }
    return true
  }

  private func stopsRetrying(_ call: Call) -> Bool {
    let (stop, isRunCancelled) = state.withLock { ($0.stop, $0.isRunCancelled) }
    return switch call {
    case .open: stop.isShutDown
    case .claim, .bestEffort: stop.isStopping
    case .attempt: stop.isCutShort || isRunCancelled
    case .other: stop.isCutShort
    }
  }

  private func waitUntilRetriesStop(of call: Call) async {
    while !Task.isCancelled, !stopsRetrying(call) {
      try? await stops.wait { stopsRetrying(call) ? .success(()) : nil }
    }
  }
}

/// Tracks whether the store is unavailable: whether a call is waiting before it is retried.
///
/// Some calls of a queue wait for other calls, for example for the lock of a unique key. Such a
/// wait is usually short, so a cancelled caller keeps waiting. This way, the last calls of a
/// cancelled handler still succeed. Only while the store is unavailable does a cancelled caller
/// stop waiting.
final class StoreAvailability: Sendable {
  private let waitingCount = Atomic(0)
  private let listeners = Mutex<[@Sendable () -> Void]>([])

  var isUnavailable: Bool { waitingCount.load(ordering: .acquiring) > 0 }

  /// Performs the body, and counts the store as unavailable until the body returns.
  func markUnavailable(during body: () async -> Void) async {
    waitingCount.add(1, ordering: .acquiringAndReleasing)
    for listener in listeners.withLock({ $0 }) { listener() }
    await body()
    waitingCount.subtract(1, ordering: .acquiringAndReleasing)
  }

  /// Makes the body be called whenever a call starts to wait for the store.
  func notifyWhenUnavailable(_ body: @escaping @Sendable () -> Void) {
    listeners.withLock { $0.append(body) }
  }
}

extension Waiters<Void> {
  /// Waits until the condition is true.
  ///
  /// Resume the waiters when the condition may have changed, and when the store becomes unavailable
  /// (``StoreAvailability/notifyWhenUnavailable(_:)``).
  ///
  /// - Throws: `CancellationError` if the caller is cancelled while the store is unavailable.
  func wait(
    until condition: () -> Bool,
    orUnavailable availability: StoreAvailability
  ) async throws {
    func mustStop() -> Bool { Task.isCancelled && availability.isUnavailable }
    while !condition() {
      if mustStop() { throw CancellationError() }
      await waitUncancelled {
        condition() || mustStop() ? () : nil
      } cancelled: {
        availability.isUnavailable ? () : nil
      }
    }
  }
}

extension TaskChange {
  /// Returns whether an earlier try has stored this change, if the store refuses a retry as stale.
  ///
  /// - Parameters:
  ///   - record: the task's current record in the store; `nil` if there is none.
  ///   - excludesOtherQueues: whether no other queue can have changed the task since the first try.
  /// - Returns: Whether the task is in the state that it has after the change.
  func wasStored(accordingTo record: TaskRecord?, excludesOtherQueues: Bool) -> Bool {
    guard let record else {
      return switch self {
      // The change has removed the task, or retained it until it was pruned.
      case .end, .remove: excludesOtherQueues
      default: false
      }
    }
    return switch self {
    case .end(_, let end):
      record.state == end.state && (record.finishedDate?.isStored(as: end.date) ?? false)
    case .move(_, let move): move.wasStored(accordingTo: record)
    case .memory(.suspend(_, let date, _, _)):
      record.state == .suspended && record.availableDate.isStored(as: date)
        // The task has already woken again.
        || record.state == .waiting && record.availableDate.isStored(as: record.createdDate)
    // If an earlier try has stored one of these changes, the store does not refuse a retry as
    // stale.
    default: false
    }
  }
}

extension TaskMove {
  /// Returns whether a task's record is as it is after this move.
  fileprivate func wasStored(accordingTo record: TaskRecord) -> Bool {
    guard let availableDate else {
      return record.state == state(from: kind == .resume ? .paused : .running)
    }
    return record.availableDate.isStored(as: availableDate)
      && retryCount.map { $0 == record.retryCount } ?? true
  }
}
