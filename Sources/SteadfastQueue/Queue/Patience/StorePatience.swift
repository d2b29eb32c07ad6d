import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How a queue waits before it makes a call of its store again whose error is transient.
///
/// It waits as long as the error is transient, until the caller is cancelled or the queue is cut
/// short. A claim, and a look at what the queue keeps, is not made again once the run is to end,
/// and a store is not opened again once the queue is shut down.
final class StorePatience: Sendable {
  /// The kinds of calls that differ in when they are not made again.
  ///
  /// A look is a call before or after a claim that the next run makes just as well, so nothing is
  /// lost without it. The call of an attempt stores what the attempt has done, and is made in a
  /// Swift task that is not cancelled along with the run.
  enum Call { case open, claim, look, attempt, other }

  /// What a queue is about to end.
  struct Stop: Sendable {
    /// The run: nothing more begins.
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

  /// Whether the calls of the current Swift task are looks, unless they are of another kind.
  @TaskLocal fileprivate static var isLooking = false

  private let time: QueueTime
  private let events: EventHub
  private let absence: StoreAbsence
  private let errorText: @Sendable (any Error) -> String
  private let state: Mutex<State>
  private let stops = Waiters<Void>()

  /// From 50 ms to 5 s, which is short beside a lease, with a jitter that keeps queues out of step.
  private static let backoff = Backoff.exponential(from: .milliseconds(100), multiplier: 2)
    .jittered(.proportional(0.5)).capped(at: .seconds(5))

  init(
    _ configuration: TaskQueueConfiguration,
    _ time: QueueTime,
    _ events: EventHub,
    _ absence: StoreAbsence
  ) {
    self.time = time
    self.events = events
    self.absence = absence
    errorText = configuration.errorText
    state = Mutex(State(generator: configuration.randomness.makeGenerator()))
  }

  /// How many calls were made again.
  var retryCount: Int { state.withLock { $0.retryCount } }

  func beginRun() { state.withLock { $0.isRunCancelled = false } }

  /// Notes that the run was cancelled, and ends the waits of its attempts.
  func runWasCancelled() {
    state.withLock { $0.isRunCancelled = true }
    stops.resumeAll(with: .success(()))
  }

  /// Notes what is about to end, and ends the waits for which that matters.
  ///
  /// Of several calls at the same time, the last one sees the latest.
  func note(_ stop: () -> Stop) {
    state.withLock { $0.stop = stop() }
    stops.resumeAll(with: .success(()))
  }

  /// Waits before a call is made again, if its error is transient.
  ///
  /// - Parameters:
  ///   - error: what the call has thrown.
  ///   - retries: how often the call was made again already.
  ///   - call: the kind of the call.
  /// - Returns: Whether to make the call again.
  func waits(after error: any Error, retries: Int, _ call: Call) async -> Bool {
    let call = call == .other && Self.isLooking ? .look : call
    guard error.isTransientFailure, !Task.isCancelled, !ends(call) else { return false }
    let attempt = RetryAttempt(number: retries + 1)
    let delay = state.withLock { Self.backoff.delay(after: attempt, using: &$0.generator) }
    events.post(
      .storeUnavailable(
        reason: errorText(error),
        retryDate: time.clock.date.storable(after: delay)
      )
    )
    await absence.last {
      await withTaskGroup { group in
        group.addTask { try? await self.time.wait(for: delay) }
        group.addTask { await self.waitForEnd(of: call) }
        await group.next()
        group.cancelAll()
      }
    }
    guard !Task.isCancelled, !ends(call) else { return false }
    state.withLock { $0.retryCount += 1 }
    return true
  }

  private func ends(_ call: Call) -> Bool {
    let (stop, isRunCancelled) = state.withLock { ($0.stop, $0.isRunCancelled) }
    return switch call {
    case .open: stop.isShutDown
    case .claim, .look: stop.isStopping
    case .attempt: stop.isCutShort || isRunCancelled
    case .other: stop.isCutShort
    }
  }

  private func waitForEnd(of call: Call) async {
    while !Task.isCancelled, !ends(call) {
      // Cancellation ends the loop.
      try? await stops.wait { ends(call) ? .success(()) : nil }
    }
  }
}

extension TaskQueue {
  /// Waits before something is done once more that has failed with a transient error.
  ///
  /// - Throws: The error, if it is not transient, or there is no time to wait.
  nonisolated func waitToRepeat(after error: any Error, _ retries: inout Int) async throws {
    guard let patience = backing.patientStore?.patience,
      await patience.waits(after: error, retries: retries, .other)
    else { throw error }
    retries += 1
  }

  /// Performs the body, whose calls of the store are looks, which the queue can do without.
  nonisolated func looking<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    guard backing.patientStore != nil else { return try await body() }
    return try await StorePatience.$isLooking.withValue(true) { try await body() }
  }
}
