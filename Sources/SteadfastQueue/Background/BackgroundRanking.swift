#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decides which background tasks run in a pass, by Selene's rule.
///
/// A task's score is its priority × the time since its last run, both normalised: the priority to
/// the highest of the five, the time to the longest of all tasks. In the order of their scores,
/// tasks run whose average duration fits into what is left of the budget. No task starves: the
/// score of one that runs drops to zero, and the scores of the others go on rising against it.
///
/// A task that has never run ranks as if no other had waited longer. If it did not wait longer from
/// one pass to the next, an important one could be ahead of it forever, so it counts from the first
/// pass that knew of it.
struct BackgroundRanking: Sendable {
  struct Candidate: Sendable, Equatable {
    var priority: BackgroundPriority
    var averageDuration: Duration
    /// When it has run last; `nil` if never.
    var lastRun: Date?
    /// When the first pass began that knew of it; `nil` if none has.
    var since: Date?
  }

  private let candidates: [Candidate]
  /// The score of each candidate, from 0 to 1.
  let scores: [Double]

  init(_ candidates: [Candidate], now: Date) {
    self.candidates = candidates
    // A date in the future comes from a clock that was set back, and says nothing.
    func wait(since date: Date?) -> Double? {
      date.flatMap { $0 <= now ? now.timeIntervalSince($0) : nil }
    }
    let waits = candidates.map { wait(since: $0.lastRun) }
    let longest =
      zip(candidates, waits).map { $1 ?? wait(since: $0.since) ?? 0 }.max() ?? 0
    scores = zip(candidates, waits).map { candidate, wait in
      let priority =
        Double(candidate.priority.rawValue) / Double(BackgroundPriority.veryHigh.rawValue)
      // If no time has passed for any, the priority alone decides.
      guard let wait, longest > 0 else { return priority }
      return priority * wait / longest
    }
  }

  /// The candidates in the order of their scores.
  ///
  /// Of equal ones, those that have never run come first, then the earlier one.
  var order: [Int] {
    let hasRun = candidates.map { $0.lastRun == nil ? 0 : 1 }
    return candidates.indices.sorted {
      (scores[$0], hasRun[$1], $1) > (scores[$1], hasRun[$0], $0)
    }
  }

  /// Returns the candidates that run within a budget, in the order of their scores.
  func selection(within budget: Duration) -> [Int] {
    Self.fitting(order, durations: candidates.map(\.averageDuration), within: budget)
  }

  /// Returns the candidates, given in their order, that fit into a budget one after the other.
  ///
  /// One that does not fit is left out, and those after it may still fit. One that takes longer
  /// than the whole budget counts as if it took all of it: else it would never run again.
  static func fitting(
    _ order: [Int],
    durations: [Duration],
    within budget: Duration
  ) -> [Int] {
    var left = max(budget, .zero)
    guard left > .zero else { return [] }
    return order.filter { index in
      let duration = min(durations[index], budget)
      guard duration <= left else { return false }
      left -= duration
      return true
    }
  }
}
