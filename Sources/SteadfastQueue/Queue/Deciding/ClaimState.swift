#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a queue knows of its claims, of which at most one is in flight.
///
/// Tasks may become available while a claim is in flight that it has not seen. Then another claim
/// follows it.
struct ClaimState: Sendable {
  /// A look at the store that found nothing to perform.
  struct Look: Sendable {
    /// The number of the claim.
    let claim: Int
    /// In a pass, the date up to which it looked.
    let cutoff: Date?
  }

  private(set) var isInFlight = false
  /// How many claims have been made, including the one in flight.
  private(set) var count = 0
  /// Whether the store may have more tasks than the last claim has returned.
  private(set) var storeHasMore = false
  /// The last look at the store, if it found nothing and nothing is known to have changed since.
  private(set) var emptyLook: Look?
  /// Whether a task may have become available too late for the claim in flight.
  private var hasNews = false
  /// Whether the result of the claim in flight may not be true any more when it returns.
  private var isStale = false

  /// The number of the claim in flight.
  var inFlight: Int? { isInFlight ? count : nil }

  /// How many claims have been made; `nil` while one is in flight.
  ///
  /// As long as it stays the same, the queue does not hold any further task.
  var finishedCount: Int? { isInFlight ? nil : count }

  mutating func begin() {
    isInFlight = true
    isStale = false
    count += 1
  }

  /// Notes that a worker has found nothing to do while the claim is in flight.
  ///
  /// It may have been woken for a task that came too late for the claim.
  mutating func workerWaits() { hasNews = true }

  /// Ends the claim in flight.
  ///
  /// - Parameters:
  ///   - hasTasks: Whether it has returned tasks.
  ///   - hasMore: Whether the store says that it has more of them.
  ///   - cutoff: In a pass, the date up to which it looked.
  mutating func end(hasTasks: Bool, hasMore: Bool, cutoff: Date?) {
    storeHasMore = hasNews || hasMore
    isInFlight = false
    hasNews = false
    let foundSomething = storeHasMore || hasTasks || isStale
    emptyLook = foundSomething ? nil : Look(claim: count, cutoff: cutoff)
  }

  /// Ends the claim in flight, which has failed.
  mutating func fail() {
    isInFlight = false
    hasNews = false
  }

  /// Counts a claim that need not be made, because nothing that it found could be performed.
  mutating func skip() {
    count += 1
    emptyLook = Look(claim: count, cutoff: nil)
  }

  /// Notes that a task may have become available.
  mutating func workArrived() {
    emptyLook = nil
    hasNews = isInFlight
  }

  /// Notes that the result of the last claim, or of the one in flight, may not be true any more.
  mutating func forgetLook() {
    emptyLook = nil
    isStale = isInFlight
  }
}
