#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decides when to look for tasks without a handler, and which names to say: a value.
///
/// A worker that was woken and finds nothing may have been woken for such a task. Looks that find
/// nothing new get rarer, so that a queue whose tasks all have handlers hardly ever looks.
struct UnhandledNotice: Sendable {
  private static let longestPatience = 64
  /// In seconds; a queue that is woken less often than this looks each time.
  private static let longestPause = 60.0

  /// What was said.
  private(set) var saidNames: Set<String> = []
  private var hasRun = false
  /// The number of attempts when a worker last found nothing.
  private var lastAttemptCount: Int?
  private var patience = 1
  private var skippedCount = 0
  private var lastLook: Date?

  /// Whether the run that begins is the first one.
  mutating func isFirstRun(now: Date) -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    lastLook = now
    return true
  }

  /// A worker has found nothing to do, after so many attempts of this run.
  ///
  /// Whether to look now.
  mutating func isDue(attemptCount: Int, now: Date) -> Bool {
    defer { lastAttemptCount = attemptCount }
    // It has performed something since, and has looked for more.
    if let lastAttemptCount, lastAttemptCount != attemptCount { return false }
    skippedCount += 1
    let isLate = lastLook.map { abs(now.timeIntervalSince($0)) >= Self.longestPause } ?? true
    guard skippedCount >= patience || isLate else { return false }
    skippedCount = 0
    lastLook = now
    return true
  }

  /// Tasks of these names wait for handlers.
  ///
  /// Returns those that have not been said.
  mutating func namesToSay(of names: [String]) -> [String] {
    let new = names.filter { saidNames.insert($0).inserted }
    patience = new.isEmpty ? min(2 * patience, Self.longestPatience) : 1
    return new
  }
}
