import SteadfastRetry
import Synchronization
import SystemFoundation

/// A wrapper of a store that retries calls with transient errors.
final class RetryingStore: StoreWrapper {
  let base: any Persistence
  let retryPolicy: StoreRetryPolicy
  /// New tasks that are being stored, and whether a claim has returned them already.
  ///
  /// If the answer to an insertion is lost, the task may be performed and removed before the retry,
  /// which would then add it a second time.
  private let insertions = Mutex<[TaskID: Bool]>([:])

  init(_ base: any Persistence, _ retryPolicy: StoreRetryPolicy) {
    self.base = base
    self.retryPolicy = retryPolicy
  }

  func open() async throws { try await retrying(.open) { try await base.open() } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await send(batch, durability).outcomes
  }

  /// Stores a batch, and returns whether it was sent more than once.
  func send(
    _ batch: [TaskChange],
    _ durability: Durability,
    _ call: StoreRetryPolicy.Call = .other
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    let new = batch.compactMap(\.newTaskID)
    if !new.isEmpty { insertions.withLock { for id in new { $0[id] = false } } }
    defer { if !new.isEmpty { insertions.withLock { for id in new { $0[id] = nil } } } }
    // On a retry, a comparison with a value that the first try has set would fail.
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

  /// Sends a batch to the store.
  ///
  /// A retry leaves out the new tasks that a claim has returned, because these are stored already.
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
  /// Whether an error of the store may be transient.
  ///
  /// The stores in memory and in a file have no such errors, and are called directly.
  var mayFailTransiently: Bool {
    switch self {
    case let store as any StoreWrapper: store.base.mayFailTransiently
    case let store as any UnsharedStore: store.hasTransientErrors
    // A store that applies changes at once depends on nothing that could be unavailable.
    default: !appliesAtOnce
    }
  }
}

extension TaskChange {
  fileprivate var comparesValue: Bool { if case .setValue = self { true } else { false } }
}

/// Decides when a queue retries a call of its store, and waits before the retry.
///
/// The queue retries a call as long as its error is transient, until the caller is cancelled or the
/// queue is cut short. Claims and looks are not retried once the run is about to end. Opening the
/// store is not retried once the queue is shut down.
final class StoreRetryPolicy: Sendable {
  /// The kinds of calls, which differ in when retries stop.
  ///
  /// A look is a call before or after a claim that can wait for the next run, so nothing is lost
  /// without it. The call of an attempt stores the attempt's result, in a Swift task that is not
  /// cancelled along with the run.
  enum Call { case open, claim, look, attempt, other }

  /// What is about to end.
  struct Stop: Sendable {
    /// The run: nothing more starts.
    var isStopping = false
    /// The queue.
    var isShutDown = false
    /// Attempts, and all waits.
    var isCutShort = false
  }

  private struct State: Sendable {
    var stop = Stop()
    var isRunCancelled = false
    var retryCount = 0
    var generator: SplitMix64
  }

  /// Whether the calls of the current Swift task count as looks, unless they are of another kind.
  @TaskLocal static var isBestEffort = false

  private let time: QueueTime
  private let events: EventHub
  private let availability: StoreAvailability
  private let errorText: @Sendable (any Error) -> String
  private let state: Mutex<State>
  private let stops = Waiters<Void>()

  /// From 50 ms to 5 s, which is short compared with a lease.
  ///
  /// The jitter keeps queues from retrying in step.
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

  /// The number of retries.
  var retryCount: Int { state.withLock { $0.retryCount } }

  func beginRun() { state.withLock { $0.isRunCancelled = false } }

  /// Records that the run was cancelled, and ends the waits of its attempts.
  func markRunCancelled() {
    state.withLock { $0.isRunCancelled = true }
    stops.resumeAll(with: .success(()))
  }

  /// Records what is about to end, and ends the waits that this affects.
  ///
  /// `stop` is called under the lock. So of several calls at the same time, the last one sets the
  /// latest state.
  func updateStop(_ stop: () -> Stop) {
    state.withLock { $0.stop = stop() }
    stops.resumeAll(with: .success(()))
  }

  /// Waits before the retry of a call, if its error is transient.
  ///
  /// - Parameters:
  ///   - error: the error of the call.
  ///   - retries: how often the call was retried already.
  ///   - call: the kind of the call.
  /// - Returns: Whether to retry the call.
  func waitToRetry(after error: any Error, retries: Int, _ call: Call) async -> Bool {
    let call = call == .other && Self.isBestEffort ? .look : call
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
    case .claim, .look: stop.isStopping
    case .attempt: stop.isCutShort || isRunCancelled
    case .other: stop.isCutShort
    }
  }

  private func waitUntilRetriesStop(of call: Call) async {
    while !Task.isCancelled, !stopsRetrying(call) {
      // Cancellation ends the loop.
      try? await stops.wait { stopsRetrying(call) ? .success(()) : nil }
    }
  }
}

/// Tracks whether the store is unavailable: whether a call waits until the store is back.
///
/// A call may have to wait for another call, which lasts as long as the store is unavailable. If
/// the first call is cancelled, it stops waiting only while the store is unavailable, because
/// otherwise the wait is short. So the last requests of a cancelled handler don't fail because of
/// other calls.
final class StoreAvailability: Sendable {
  private let waitingCount = Atomic(0)
  private let listeners = Mutex<[@Sendable () -> Void]>([])

  /// Whether a call waits until the store is back.
  var isUnavailable: Bool { waitingCount.load(ordering: .acquiring) > 0 }

  /// Counts the store as unavailable during the body, which waits until the store may be back.
  func markUnavailable(during body: () async -> Void) async {
    waitingCount.add(1, ordering: .acquiringAndReleasing)
    for listener in listeners.withLock({ $0 }) { listener() }
    await body()
    waitingCount.subtract(1, ordering: .acquiringAndReleasing)
  }

  /// Calls the body, from now on, whenever a call starts to wait for the store.
  func notifyWhenUnavailable(_ body: @escaping @Sendable () -> Void) {
    listeners.withLock { $0.append(body) }
  }
}

extension Waiters<Void> {
  /// Waits until a condition is true.
  ///
  /// These waiters are resumed when the condition may have changed, and when the store becomes
  /// unavailable (``StoreAvailability/notifyWhenUnavailable(_:)``).
  ///
  /// - Throws: `CancellationError` if the caller is cancelled, and the store is unavailable.
  func wait(until isSo: () -> Bool, orUnavailable availability: StoreAvailability) async throws {
    func givesUp() -> Bool { Task.isCancelled && availability.isUnavailable }
    while !isSo() {
      if givesUp() { throw CancellationError() }
      await waitUncancelled {
        isSo() || givesUp() ? () : nil
      } cancelled: {
        availability.isUnavailable ? () : nil
      }
    }
  }
}

extension TaskChange {
  /// Returns whether an earlier try has stored this change, which the store now refuses as stale.
  ///
  /// - Parameters:
  ///   - record: the task's current record in the store; `nil` if there is none.
  ///   - excludesOtherQueues: whether no other queue can have changed the task since then.
  /// - Returns: Whether the record shows the state that the task has after the change.
  func wasStored(accordingTo record: TaskRecord?, excludesOtherQueues: Bool) -> Bool {
    guard let record else {
      return switch self {
      // A task that is retained may have been pruned already.
      case .succeed, .abandon, .cancel, .remove: excludesOtherQueues
      default: false
      }
    }
    return switch self {
    case .succeed(_, let date, _): record.hasEnded(.succeeded, at: date)
    case .abandon(_, let failure, _): record.hasEnded(.abandoned, at: failure.date)
    case .cancel(_, let date, _): record.hasEnded(.cancelled, at: date)
    case .retry(_, let date, let count, _, _):
      record.retryCount == count && record.availableDate.isStored(as: date)
    case .restart(_, let date, _), .reschedule(_, let date, _):
      record.availableDate.isStored(as: date)
    case .suspend(_, let date, _, _):
      record.state == .suspended && record.availableDate.isStored(as: date)
        // The task woke at once, or has woken since.
        || record.state == .waiting && record.availableDate.isStored(as: record.createdDate)
    case .park: record.state == .parked
    case .pause: record.state == .paused
    case .release, .resume: record.state == .waiting
    // The other changes are never stale, or not when they are sent again.
    default: false
    }
  }
}

extension TaskRecord {
  fileprivate func hasEnded(_ state: TaskState, at date: Date) -> Bool {
    self.state == state && (finishedDate?.isStored(as: date) ?? false)
  }
}
