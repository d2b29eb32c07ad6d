import SystemFoundation

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

/// How many tasks a queue claims beyond those for idle workers.
///
/// While a task that is claimed ahead waits for a worker, no other process performs it, and a task
/// with a higher priority comes after it. So the queue claims ahead only as much as it
/// performs in ``longestExpectedWait``, by how long its last attempts took.
struct Prefetch: Sendable {
  /// How long tasks that are claimed ahead may be expected to wait for a worker.
  static let longestExpectedWait = Duration.milliseconds(10)
  /// How long they may wait at least before they are released.
  static let longestWait = Duration.milliseconds(100)

  /// How many tasks a claim may hand out; with 0, the queue does not claim ahead.
  private let batch: Int
  /// How long attempts take: an average in which each counts less than the next one.
  private var average: Duration?
  /// Whether the last claim has handed out a task whose attempt was interrupted.
  ///
  /// Such a task may end the process again, and all tasks that are claimed then count as
  /// interrupted. So none is claimed ahead beside it.
  private(set) var isCareful = false

  init(batch: Int) { self.batch = batch }

  /// Notes how long an attempt took.
  mutating func note(_ duration: Duration) {
    guard batch > 0 else { return }
    guard let average else { return self.average = duration }
    self.average = average + (duration - average) / 8
  }

  /// Notes that tasks that were claimed ahead have waited too long.
  mutating func waitedTooLong() { average = Self.longestExpectedWait * 2 }

  /// Notes the tasks of a claim.
  mutating func claimed(_ tasks: [ClaimedTask]) {
    guard batch > 0, !tasks.isEmpty else { return }
    isCareful = tasks.contains { $0.record.interruptionCount > 0 }
  }

  /// Returns how many tasks a claim asks for.
  func limit(idle: Int, workers: Int) -> Int {
    guard batch > idle && !isCareful, let average else { return idle }
    let each = Self.longestExpectedWait / max(average, .microseconds(1))
    return max(idle, min(batch, Int(each) * workers))
  }
}
