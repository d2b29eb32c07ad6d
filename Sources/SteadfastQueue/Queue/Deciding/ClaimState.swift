import SystemFoundation

/// Tracks a queue's claims: the calls to its store that reserve tasks for the queue.
///
/// At most one claim is in flight. If tasks become available too late for that claim, the queue
/// makes another one.
struct ClaimState: Sendable {
  /// A claim that found nothing to perform.
  struct EmptyClaim: Sendable {
    /// The number of the claim.
    let number: Int
    /// The date up to which the claim looked for available tasks; `nil` if there was no limit.
    let cutoff: Date?
  }

  private(set) var isInFlight = false
  /// The number of claims, including the one in flight.
  private(set) var count = 0
  /// Whether the store may have more tasks than the last claim returned.
  private(set) var storeHasMore = false
  /// The last claim, if it found nothing and the queue knows of no change since then.
  private(set) var emptyClaim: EmptyClaim?
  /// Whether a task may have become available too late for the claim in flight.
  private var mayHaveMissedTasks = false
  /// Whether the result of the claim in flight may be outdated when it returns.
  private var isStale = false

  /// The number of the claim in flight; `nil` if there is none.
  var inFlight: Int? { isInFlight ? count : nil }

  /// The number of claims; `nil` while one is in flight.
  ///
  /// If the number is the same at two times, the queue has claimed no task in between.
  var finishedCount: Int? { isInFlight ? nil : count }

  mutating func begin() {
    isInFlight = true
    isStale = false
    count += 1
  }

  /// Records that a worker found nothing to do while the claim is in flight.
  ///
  /// That worker may have been woken for a task that arrived too late for the claim.
  mutating func noteWaitingWorker() { mayHaveMissedTasks = true }

  /// Ends the claim in flight.
  ///
  /// - Parameters:
  ///   - hasTasks: Whether the claim returned tasks.
  ///   - hasMore: Whether the store has more available tasks.
  ///   - cutoff: The date up to which the claim looked for available tasks, if it was limited.
  mutating func end(hasTasks: Bool, hasMore: Bool, cutoff: Date?) {
    storeHasMore = mayHaveMissedTasks || hasMore
    isInFlight = false
    mayHaveMissedTasks = false
    let foundSomething = storeHasMore || hasTasks || isStale
    emptyClaim = foundSomething ? nil : EmptyClaim(number: count, cutoff: cutoff)
  }

  /// Ends the claim in flight, which has failed.
  mutating func fail() {
    isInFlight = false
    mayHaveMissedTasks = false
  }

  /// Counts a claim that is not made, because no task could start.
  mutating func skip() {
    count += 1
    emptyClaim = EmptyClaim(number: count, cutoff: nil)
  }

  /// Records that a task may have become available.
  mutating func workArrived() {
    emptyClaim = nil
    mayHaveMissedTasks = isInFlight
  }

  /// Marks the result of the last claim, or of the claim in flight, as possibly outdated.
  mutating func markResultOutdated() {
    emptyClaim = nil
    isStale = isInFlight
  }
}

/// Decides how many tasks a queue prefetches, that is, claims before a worker is idle.
///
/// While a prefetched task waits for a worker, no other process can perform the task, and the task
/// starts before new tasks with a higher priority. So the queue prefetches only as many tasks as it
/// expects to perform within ``longestExpectedWait``, judging by the duration of recent attempts.
struct Prefetch: Sendable {
  /// The maximum time for which prefetched tasks are expected to wait for a worker.
  static let longestExpectedWait = Duration.milliseconds(10)
  /// How long prefetched tasks wait for a worker before they are released.
  static let longestWait = Duration.milliseconds(100)

  /// The maximum number of tasks per claim; with 0, the queue does not prefetch.
  private let batch: Int
  /// The average duration of attempts, in which recent attempts count more.
  private var average: Duration?
  /// Whether the last claim returned a task whose attempt was interrupted.
  ///
  /// Such a task may crash the process again, and every claimed task then counts as interrupted. So
  /// nothing is prefetched until a claim returns only other tasks.
  private(set) var isCareful = false

  init(batch: Int) { self.batch = batch }

  /// Records how long an attempt took.
  mutating func addDuration(_ duration: Duration) {
    guard batch > 0 else { return }
    guard let average else { return self.average = duration }
    self.average = average + (duration - average) / 8
  }

  /// Records that prefetched tasks have waited too long, so that fewer are prefetched.
  mutating func noteLongWait() { average = Self.longestExpectedWait * 2 }

  /// Records whether a claim returned a task whose attempt was interrupted.
  mutating func checkForInterrupted(in tasks: [ClaimedTask]) {
    guard batch > 0, !tasks.isEmpty else { return }
    isCareful = tasks.contains { $0.record.interruptionCount > 0 }
  }

  /// Returns the number of tasks to ask for in a claim.
  func limit(idle: Int, workers: Int) -> Int {
    guard batch > idle && !isCareful, let average else { return idle }
    let each = Self.longestExpectedWait / max(average, .microseconds(1))
    return max(idle, min(batch, Int(each) * workers))
  }
}
