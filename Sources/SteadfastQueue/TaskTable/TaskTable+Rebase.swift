#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Rebases the tasks, because the clock went back to this date.
  ///
  /// O(1) if no task was created or failed, and no claim was made, after this date. Otherwise O(n),
  /// and O(k log k) for the k tasks that are moved or wait again.
  mutating func rebase(to now: Date) {
    // Each affected task was created or failed later than `now`, or is ready by a later date.
    guard latestDate > now || cutoff > now else { return }
    cutoff = min(cutoff, now)
    let affected = entries.slots
      .filter { isAffected($0, byRebasingTo: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in affected {
      let waits = entries[slot].record.state.isClaimable
      if waits { leaveLine(slot) }
      let wasMoved = entries[slot].record.rebase(to: now)
      guard waits else { continue }
      if wasMoved { entries[slot].position = nextNumber() }
      // When the change that holds a task is committed or rolled back, the task is lined up here.
      if !entries[slot].isReserved { lineUp(slot) }
    }
  }

  /// Makes tasks wait again that are ready by a later date than this.
  ///
  /// O(n).
  mutating func withdraw(to now: Date) {
    cutoff = now
    // A reserved task is lined up if the change that holds it is rolled back.
    for slot in entries.slots where isReady(slot, after: now) && !entries[slot].isReserved {
      lineUp(slot)
    }
  }

  /// Returns whether a task is ready by a date that is after `now`.
  private func isReady(_ slot: Int, after now: Date) -> Bool {
    entries[slot].place == .ready && entries[slot].record.availableDate > now
  }

  /// Returns whether rebasing moves a task, or whether it is ready by a date that is after `now`.
  private func isAffected(_ slot: Int, byRebasingTo now: Date) -> Bool {
    let entry = entries[slot]
    guard entry.place != .staged, !entry.record.state.isFinished else { return false }
    var record = entry.record
    return record.rebase(to: now) || isReady(slot, after: now)
  }
}
