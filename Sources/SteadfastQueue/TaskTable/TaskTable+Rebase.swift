#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Rebases the tasks, because the clock went back to this date.
  ///
  /// O(1) if nothing was dated after this date. Otherwise O(n), and O(k log k) for the k tasks that
  /// were.
  mutating func rebase(to now: Date) {
    cutoff = min(cutoff, now)
    guard latestDate > now else { return }
    let dated = entries.slots
      .filter { isDated($0, after: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in dated { rebase(slot, to: now) }
  }

  private mutating func rebase(_ slot: Int, to now: Date) {
    let wasInLine = entries[slot].isInLine
    let waited = entries[slot].record.state.isClaimable
    leaveLine(slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.rebase(to: now) }
    if entries[slot].record.state.isFinished, let key = entries[slot].record.uniqueKey {
      // It may stand for its key for a shorter time than another one now.
      forgetWithoutRole(slot, key)
      keys.addWithoutRole(slot, key)
      noteRecent(slot, key)
    }
    if goesBehind, waited {
      // When the change that holds a task is committed or rolled back, the task is lined up.
      lineUpAnewWhenFree(slot)
    } else if wasInLine {
      lineUp(slot)
    }
  }

  /// Returns whether rebasing changes a task.
  private func isDated(_ slot: Int, after now: Date) -> Bool {
    guard entries[slot].place != .staged else { return false }
    let record = entries[slot].record
    return record.createdDate > now
      || record.hasFailureState && !record.state.isFinished
        && max(record.explicitOrigin ?? now, record.failedDate ?? now) > now
  }
}
