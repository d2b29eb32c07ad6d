import SteadfastRetry
import Synchronization
import SystemFoundation

/// A store that calls another store, and retries calls that throw a transient error.
final class RetryingStore: StoreWrapper {
  let base: any Persistence
  let retryPolicy: StoreRetryPolicy

  init(_ base: any Persistence, _ retryPolicy: StoreRetryPolicy) {
    self.base = base
    self.retryPolicy = retryPolicy
  }

  func open() async throws { try await retrying(.open) { try await base.open() } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await retrying { try await base.apply(batch, durability: durability) }
  }

  /// Applies the changes that a handler makes during its attempt.
  func applyInAttempt(
    _ batch: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await retrying(.attempt) { try await base.apply(batch, durability: durability) }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await retrying(.claim) { try await base.claim(request) }
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await retrying {
      try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
    }
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await retrying { try await base.count(matching: filter) }
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await retrying { try await base.contains(filter) }
  }

  func census(at now: Date) async throws -> TaskCensus {
    try await retrying { try await base.census(at: now) }
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
    var retries = StoreRetryPolicy.Retries()
    while true {
      do {
        let value = try await call()
        if retries.count > 0 { retryPolicy.recordAnswer(&retries) }
        return value
      } catch {
        guard await retryPolicy.waitToRetry(after: error, &retries, kind) else {
          retryPolicy.giveUp(&retries)
          throw error
        }
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

/// Decides whether a queue retries a call of its store, and waits before the retry.
///
/// A call is retried as long as it throws a transient error, until the caller is cancelled. A call
/// outside of a run is retried for ``TaskQueueConfiguration/storeTimeout``. What else ends the
/// retries depends on the kind of the call (``Call``).
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

  /// The retries of a call.
  struct Retries {
    var count = 0
    /// When the first try failed; `nil` if it has not failed.
    fileprivate var start: Duration?
    /// Whether the call counts as one that waits for the store.
    fileprivate var isCounted = false
  }

  /// A time during which no call that was retried has succeeded.
  private struct Outage: Sendable {
    let start: Duration
    /// When a call last failed.
    var end: Duration
    /// Whether the configuration's `notice` has reported the outage.
    var isReported = false
  }

  private struct State: Sendable {
    var stop = Stop()
    var isRunCancelled = false
    var retryCount = 0
    var outage: Outage?
    /// How many calls have failed and are retried.
    var waitingCalls = 0
    /// When the first of these calls failed, and no other one was being retried.
    var awaySince = Duration.zero
    var generator: SplitMix64
  }

  /// Whether calls of the kind `other` in the current Swift task count as `bestEffort`.
  @TaskLocal static var isBestEffort = false
  /// Whether the current Swift task belongs to a run, which waits for the store without a limit.
  @TaskLocal static var isOfRun = false

  /// How long calls wait before the configuration's `notice` reports it.
  private static let silentWait = Duration.seconds(5)

  private let queue: String
  private let store: any Persistence
  private let time: QueueTime
  private let events: EventHub
  private let availability: StoreAvailability
  private let configuration: TaskQueueConfiguration
  private let state: Mutex<State>
  private let stops = Waiters<Void>()

  /// Delays from 50 ms to 5 s, which is short compared with a lease.
  ///
  /// Because of the jitter, several queues don't retry at the same time.
  private static let backoff = Backoff.exponential(from: .milliseconds(100), multiplier: 2)
    .jittered(.proportional(0.5)).capped(at: .seconds(5))

  init(
    _ queue: String,
    _ store: any Persistence,
    _ configuration: TaskQueueConfiguration,
    _ time: QueueTime,
    _ events: EventHub,
    _ availability: StoreAvailability
  ) {
    self.queue = queue
    self.store = store
    self.time = time
    self.events = events
    self.availability = availability
    self.configuration = configuration
    state = Mutex(State(generator: configuration.randomness.makeGenerator()))
  }

  var retryCount: Int { state.withLock { $0.retryCount } }

  /// Since when a call has been waiting for the store; `nil` if none waits.
  var waitingSince: Date? {
    let since = state.withLock { $0.waitingCalls > 0 ? $0.awaySince : nil }
    return since.map { time.clock.date - (time.stopwatch() - $0) / .seconds(1) }
  }

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
  ///   - retries: the retries of the call so far.
  ///   - call: the kind of the call.
  /// - Returns: Whether to retry the call.
  func waitToRetry(after error: any Error, _ retries: inout Retries, _ call: Call) async -> Bool {
    let call = call == .other && Self.isBestEffort ? .bestEffort : call
    guard error.isTransientFailure, !Task.isCancelled, !stopsRetrying(call) else { return false }
    let now = time.stopwatch()
    let start = retries.start ?? now
    retries.start = start
    let attempt = RetryAttempt(number: retries.count + 1)
    var delay = state.withLock { Self.backoff.delay(after: attempt, using: &$0.generator) }
    if !Self.isOfRun {
      let rest = start + configuration.storeTimeout - now
      guard rest > .zero, call != .open || !error.isProbablyLasting else { return false }
      delay = min(delay, rest)
    }
    let reason = configuration.errorText(error)
    events.post(
      .storeUnavailable(reason: reason, retryDate: time.clock.date.storableDate(after: delay))
    )
    let silence = recordFailure(at: now, &retries)
    await availability.markUnavailable { [delay] in
      await withTaskGroup { group in
        group.addTask {
          if silence < delay {
            try? await self.time.wait(for: silence)
            if !Task.isCancelled { self.reportOutage(because: reason) }
          }
          try? await self.time.wait(for: silence < delay ? delay - silence : delay)
        }
        group.addTask { await self.waitUntilRetriesStop(of: call) }
        await group.next()
        group.cancelAll()
      }
    }
    guard !Task.isCancelled, !stopsRetrying(call) else { return false }
    state.withLock { $0.retryCount += 1 }
    retries.count += 1
    return true
  }

  /// Records that a call has failed, and is retried.
  ///
  /// - Returns: How long to wait before the outage is reported.
  private func recordFailure(at now: Duration, _ retries: inout Retries) -> Duration {
    defer { retries.isCounted = true }
    return state.withLock { state in
      if !retries.isCounted {
        if state.waitingCalls == 0 { state.awaySince = now }
        state.waitingCalls += 1
      }
      // After a long time without a call, this is another outage.
      var outage = state.outage ?? Outage(start: now, end: now)
      if now - outage.end > .seconds(60) { outage = Outage(start: now, end: now) }
      outage.end = now
      state.outage = outage
      return max(.zero, outage.start + Self.silentWait - now)
    }
  }

  /// Calls the configuration's `notice`, once for each outage.
  private func reportOutage(because reason: String) {
    let isNew = state.withLock { state in
      defer { state.outage?.isReported = true }
      return state.outage?.isReported == false
    }
    guard isNew else { return }
    configuration.notice?(
      "the queue '\(queue)' has waited \(Self.silentWait.components.seconds) s for \(store), and goes "
        + "on waiting: \(reason)"
    )
  }

  /// Records that a call that has failed is no longer retried.
  func giveUp(_ retries: inout Retries) {
    if retries.isCounted { state.withLock { $0.waitingCalls -= 1 } }
    retries.isCounted = false
  }

  /// Records that a call has succeeded that had failed before.
  func recordAnswer(_ retries: inout Retries) {
    giveUp(&retries)
    let wasReported = state.withLock { state in
      defer { state.outage = nil }
      return state.outage?.isReported == true
    }
    if wasReported { configuration.notice?("the queue '\(queue)' has reached \(store) again") }
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
