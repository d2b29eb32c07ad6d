#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Leases the first tasks.
  ///
  /// O(log n) for each task, however many names the request lists. A ready task that comes first in
  /// its line, and is available only later, costs as much: it waits again. Each name that has ready
  /// tasks and no room costs one more look if it comes before others. If the request lists fewer
  /// than half as many names as have ready tasks, and allows no others, each of its names costs one
  /// look instead.
  mutating func claim(_ request: ClaimRequest) -> Claim {
    promote(until: request.now)
    guard let queue = lanes.number(ofQueue: request.queue) else {
      // It has never had a task.
      return Claim(tasks: [], nextDate: nil)
    }
    var tasks: [ClaimedTask] = []
    var leavesMore = false
    var search = lanes.beginSearch(request, in: queue)
    while !leavesMore, let lane = lanes.nextLane(in: &search) {
      let slot = lanes.first(of: lane)
      let isDue = entries[slot].record.availableDate <= request.now
      if isDue, tasks.count >= request.limit {
        leavesMore = true
      } else {
        lanes.takeFirst(of: lane, in: &search, usesRoom: isDue)
        entries[slot].isInLine = false
        // It became ready by a later date, and the clock has gone back since.
        if isDue { tasks.append(lease(slot)) } else { lineUp(slot) }
      }
    }
    lanes.end(search)
    return Claim(tasks: tasks, nextDate: leavesMore ? request.now : waiting.first?.date)
  }

  /// Undoes a claim: each task returns to its place in line.
  mutating func unclaim(_ claim: Claim) {
    for task in claim.tasks.reversed() {
      commit(stage(.release(task.lease)))
    }
  }

  mutating func lease(_ slot: Int) -> ClaimedTask {
    leaveLine(slot)
    let token = nextNumber()
    setState(.running, of: slot)
    setPlace(.leased(token: token), of: slot)
    let record = shownRecord(of: slot)
    return ClaimedTask(record: record, lease: Lease(id: record.id, token: token))
  }

  /// Makes the tasks ready that have become available.
  private mutating func promote(until now: Date) {
    cutoff = now
    while let first = waiting.first, first.date <= now {
      waiting.popFirst()
      entries[first.node.slot].isInLine = false
      lineUp(first.node.slot)
    }
  }
}
