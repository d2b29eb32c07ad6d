#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Rebases the tasks, because the clock went back to this date.
  ///
  /// O(1) if no task was created or failed after this date. Otherwise O(n), and O(k log k) for the
  /// k tasks that are moved.
  mutating func rebase(to now: Date) {
    cutoff = min(cutoff, now)
    // Each task that is moved was created or failed later than `now`.
    guard latestDate > now else { return }
    let moved = entries.slots
      .filter { isMoved($0, byRebasingTo: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in moved {
      let waits = entries[slot].record.state.isClaimable
      if waits { leaveLine(slot) }
      _ = entries[slot].record.rebase(to: now)
      guard waits else { continue }
      entries[slot].position = nextNumber()
      // When the change that holds a task is committed or rolled back, the task is lined up here.
      if !entries[slot].isReserved { lineUp(slot) }
    }
  }

  /// Returns whether rebasing moves a task.
  private func isMoved(_ slot: Int, byRebasingTo now: Date) -> Bool {
    let entry = entries[slot]
    guard entry.place != .staged, !entry.record.state.isFinished else { return false }
    var record = entry.record
    return record.rebase(to: now)
  }
}
