import SystemFoundation

/// The state of a queue's claims, of which at most one is in flight.
///
/// If tasks become available too late for the claim in flight, the queue makes another claim.
struct ClaimState: Sendable {
  /// A claim that found nothing to perform.
  struct EmptyClaim: Sendable {
    /// The number of the claim.
    let number: Int
    /// In a pass, the cutoff of the claim.
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

  /// The number of the claim in flight.
  var inFlight: Int? { isInFlight ? count : nil }

  /// The number of claims; `nil` while one is in flight.
  ///
  /// While this number stays the same, the queue claims no further task.
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
  ///   - hasMore: Whether the store has more tasks.
  ///   - cutoff: In a pass, the cutoff of the claim.
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

  /// Counts a claim that is skipped, because nothing could be performed anyway.
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

/// Decides how many tasks a queue prefetches: claims beyond those for idle workers.
///
/// While a prefetched task waits for a worker, no other process can perform the task, and the task
/// starts before new tasks with a higher priority. So the queue prefetches only as many tasks as it
/// performs in ``longestExpectedWait``, judging by the duration of its last attempts.
struct Prefetch: Sendable {
  /// How long prefetched tasks may be expected to wait for a worker.
  static let longestExpectedWait = Duration.milliseconds(10)
  /// The minimum time that prefetched tasks wait before they are released.
  static let longestWait = Duration.milliseconds(100)

  /// The maximum number of tasks per claim; with 0, the queue does not prefetch.
  private let batch: Int
  /// The average duration of attempts, in which later attempts count more.
  private var average: Duration?
  /// Whether the last claim returned a task whose attempt was interrupted.
  ///
  /// Such a task may end the process again, and every claimed task then counts as interrupted. So
  /// no task is prefetched while the interrupted task is claimed.
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

  /// Checks whether the tasks that a claim returned include an interrupted one.
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
