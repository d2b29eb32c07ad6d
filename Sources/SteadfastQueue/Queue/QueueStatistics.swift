import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue holds, and what it has done since it was made.
///
/// The counts of what was done belong to one ``TaskQueue``. They are not stored: they begin at zero
/// with each process.
public struct QueueStatistics: Sendable, Hashable {
  /// How many tasks the store holds, by state; a state without tasks is not listed.
  public internal(set) var counts: [TaskState: Int] = [:]
  /// When the queue was made.
  public internal(set) var since: Date
  /// How many attempts have begun.
  public internal(set) var attempts = 0
  /// How many attempts have ended in success.
  public internal(set) var succeeded = 0
  /// How many attempts have failed and are followed by another.
  public internal(set) var failed = 0
  /// How many tasks were abandoned.
  public internal(set) var abandoned = 0
  /// How many attempts ended in a snooze.
  public internal(set) var snoozed = 0
  /// How often a rate limit was used up, or paused, when the queue looked for tasks.
  ///
  /// It is counted once for each date at which tasks may begin again.
  public internal(set) var rateLimited = 0
  /// How many calls of the store were made again, because its error was transient.
  public internal(set) var storeRetries = 0
  /// How long tasks waited from when they were available until an attempt began.
  public internal(set) var waitTime = Times()
  /// How long handlers ran.
  public internal(set) var runTime = Times()
  /// How many tasks have succeeded per second, on average since the queue was made.
  public internal(set) var throughput = 0.0

  /// A summary of durations: how many, their sum, and the longest.
  public struct Times: Sendable, Hashable {
    /// The number of durations.
    public private(set) var count = 0
    /// Their sum.
    public private(set) var total = Duration.zero
    /// The longest duration.
    public private(set) var longest = Duration.zero

    /// Their mean; zero if there was none.
    public var mean: Duration { count == 0 ? .zero : total / count }

    mutating func add(_ time: Duration) {
      count += 1
      total += time
      longest = max(longest, time)
    }
  }

  /// The counts that the queue updates while it works.
  struct Tally: Sendable {
    private(set) var statistics: QueueStatistics

    init(since date: Date) { statistics = QueueStatistics(since: date) }

    mutating func began(after waiting: Duration) {
      statistics.attempts += 1
      statistics.waitTime.add(waiting)
    }

    mutating func ended(after time: Duration) { statistics.runTime.add(time) }

    mutating func stored(_ change: TaskChange) {
      switch change {
      case .succeed: statistics.succeeded += 1
      case .retry(_, _, _, let failure?, _):
        _ = failure
        statistics.failed += 1
      case .retry(_, _, _, nil, _): statistics.snoozed += 1
      case .abandon: statistics.abandoned += 1
      case .insert, .release, .park, .unpark, .cancel, .pause, .resume, .restart, .reschedule,
        .update, .remove, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
  }
}

extension TaskQueue {
  /// What the queue holds, and what it has done since it was made.
  ///
  /// - Throws: what the store throws.
  public nonisolated var statistics: QueueStatistics {
    get async throws {
      try await open()
      var statistics = observers.statistics.withLock { $0.statistics }
      statistics.rateLimited = rateLimiting?.usedUpCount ?? 0
      statistics.storeRetries = backing.patientStore?.patience.retryCount ?? 0
      for state in TaskState.allCases {
        let count = try await store.count(matching: TaskFilter(states: [state]))
        if count > 0 { statistics.counts[state] = count }
      }
      let seconds = time.stopwatch() / .seconds(1)
      statistics.throughput = seconds > 0 ? Double(statistics.succeeded) / seconds : 0
      return statistics
    }
  }
}

extension QueueStatistics: CustomStringConvertible {
  /// The numbers in a line, as in `2 waiting, 1 running; 10 attempts: 8 succeeded, …`.
  public var description: String {
    let states = TaskState.allCases.compactMap { state in
      counts[state].map { "\($0) \(state)" }
    }
    let held = states.isEmpty ? "no tasks" : states.joined(separator: ", ")
    return "\(held); \(attempts) attempts: \(succeeded) succeeded, \(failed) failed, "
      + "\(abandoned) abandoned, \(snoozed) snoozed; waited \(waitTime), ran \(runTime)"
  }
}

extension QueueStatistics.Times: CustomStringConvertible {
  /// The mean and the longest, to a thousandth of a second or of a millisecond.
  public var description: String {
    "\(Self.text(mean)) on average, \(Self.text(longest)) at most"
  }

  private static func text(_ time: Duration) -> String {
    let seconds = time / .seconds(1)
    guard seconds < 1 else { return "\((seconds * 1e3).rounded() / 1e3) s" }
    return "\((seconds * 1e6).rounded() / 1e3) ms"
  }
}
