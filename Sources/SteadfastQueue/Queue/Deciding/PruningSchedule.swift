#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decides when retained tasks are pruned.
///
/// They are pruned when a run begins, and each time at least 256 more have ended.
struct PruningSchedule: Sendable {
  private static let interval = 256

  private let retentions: [(state: TaskState, retention: Retention)]
  private var endedCount = 0

  init(_ configuration: TaskQueueConfiguration) {
    retentions = [
      (.succeeded, configuration.succeededRetention),
      (.abandoned, configuration.abandonedRetention),
      (.cancelled, configuration.cancelledRetention),
    ].filter { $0.1.maxCount != nil || $0.1.maxAge != nil }
  }

  /// Returns what to prune when a run begins.
  ///
  /// This includes tasks that were retained under an earlier configuration, and are not any more.
  func changes(now: Date) -> [TaskChange] { changes(retentions, now: now) }

  private func changes(
    _ retentions: [(state: TaskState, retention: Retention)],
    now: Date
  ) -> [TaskChange] {
    retentions.map { state, retention in
      .prune(
        state,
        endedBefore: retention.maxAge.map { (now - max(0, $0 / .seconds(1))).storable },
        keepingLatest: retention.maxCount,
        now: now
      )
    }
  }

  /// Returns what to prune now that these tasks have ended, too.
  mutating func changes(
    after settlements: some Collection<Settlement>,
    now: @autoclosure () -> Date
  ) -> [TaskChange] {
    endedCount += settlements.count { $0.isKeptEnd }
    guard endedCount >= Self.interval else { return [] }
    endedCount = 0
    // Tasks that have succeeded may be retained for their unique keys alone.
    return changes(retentions.filter { $0.retention.retains || $0.state == .succeeded }, now: now())
  }
}
