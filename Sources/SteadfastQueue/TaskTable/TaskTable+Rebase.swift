#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// The clock went back to this date.
  ///
  /// O(1) if it is behind all dates that were told; else O(n), and O(k log k) for the k tasks that
  /// are moved or wait again.
  mutating func rebase(to now: Date) {
    // Each task that is affected was made or has failed later, or is ready by a later date.
    guard latestDate > now || horizon > now else { return }
    horizon = min(horizon, now)
    let affected = slots.all
      .filter { isAffected($0, byRebasingTo: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in affected {
      // What stands in no line is lined up if the change that holds it is rolled back.
      let waits = entries[slot].isInLine && entries[slot].record.state == .waiting
      if waits { leaveLine(slot) }
      let wasMoved = entries[slot].record.rebase(to: now)
      guard waits else { continue }
      if wasMoved { lineUpAnew(slot) } else { lineUp(slot) }
    }
  }

  /// Nothing is ready by a later date than this.
  ///
  /// O(n).
  mutating func withdraw(to now: Date) {
    horizon = now
    // A reserved one is lined up if the change that holds it is rolled back.
    for slot in slots.all where isReady(slot, after: now) && !entries[slot].isReserved {
      lineUp(slot)
    }
  }

  /// Whether a task is ready by a date that has not come now.
  private func isReady(_ slot: Int, after now: Date) -> Bool {
    entries[slot].place == .ready && entries[slot].record.availableDate > now
  }

  /// Whether a task is to be moved, or is ready by a date that has not come now.
  private func isAffected(_ slot: Int, byRebasingTo now: Date) -> Bool {
    let entry = entries[slot]
    guard entry.place != .staged, !entry.record.state.isFinished else { return false }
    var record = entry.record
    return record.rebase(to: now) || isReady(slot, after: now)
  }
}
