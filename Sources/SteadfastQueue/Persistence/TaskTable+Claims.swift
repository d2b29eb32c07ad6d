#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Leases the first tasks.
  ///
  /// O(log n) a task while names are few.
  mutating func claim(_ request: ClaimRequest) -> Claim {
    promote(until: request.now)
    // Taken out and put back: its memory serves the next claim.
    var open = openLanes
    openLanes = []
    defer { openLanes = open }
    fill(&open, for: request)
    var tasks: [ClaimedTask] = []
    while tasks.count < request.limit, let best = best(of: open) {
      guard let ready = lanes[open[best].lane].ready.popFirst() else { break }
      guard isCurrent(ready.node, .ready) else { continue }
      tasks.append(lease(ready.node.slot))
      open[best].room -= 1
    }
    dropStaleNodes(open)
    return Claim(tasks: tasks, nextDate: best(of: open) == nil ? nextDate() : request.now)
  }

  /// Takes a claim back: each task returns to its place in line.
  mutating func unclaim(_ claim: Claim) {
    for task in claim.tasks.reversed() {
      commit(stage(.release(task.lease)))
    }
  }

  mutating func lease(_ slot: Int) -> ClaimedTask {
    let token = nextNumber()
    setState(.running, of: slot)
    setPlace(.leased(token: token), of: slot)
    let record = entries[slot].record
    return ClaimedTask(record: record, lease: Lease(id: record.id, token: token))
  }

  /// A lane that a claim may take tasks from, and how many.
  struct OpenLane: Sendable {
    let lane: Int
    var room: Int
  }

  private func fill(_ open: inout [OpenLane], for request: ClaimRequest) {
    open.removeAll(keepingCapacity: true)
    if request.names.count <= lanes.count, request.otherNames <= 0 {
      for (name, room) in request.names {
        if let lane = laneIndices[name] { open.append(OpenLane(lane: lane, room: room)) }
      }
    } else {
      for lane in lanes.indices where lanes[lane].taskCount > 0 {
        let room = request.names[lanes[lane].name] ?? request.otherNames
        open.append(OpenLane(lane: lane, room: room))
      }
    }
  }

  private func best(of open: [OpenLane]) -> Int? {
    var best: (index: Int, node: ReadyNode)?
    for index in open.indices where open[index].room > 0 {
      guard let node = lanes[open[index].lane].ready.first else { continue }
      if let current = best, current.node < node { continue }
      best = (index, node)
    }
    return best?.index
  }

  /// Makes ready what has become available.
  private mutating func promote(until now: Date) {
    if presumesHorizon {
      presumesHorizon = false
      if now < horizon { withdraw(to: now) }
    }
    // A date that has gone back is taken over once no task is ready by a later one.
    horizon = readyCount > 0 ? max(horizon, now) : now
    while let first = waiting.first {
      let isCurrent = isCurrent(first.node, .waiting)
      guard first.date <= horizon || !isCurrent else { return }
      waiting.popFirst()
      if isCurrent { lineUp(first.node.slot) }
    }
  }

  private mutating func dropStaleNodes(_ open: [OpenLane]) {
    for lane in open.lazy.map(\.lane) {
      while let first = lanes[lane].ready.first, !isCurrent(first.node, .ready) {
        lanes[lane].ready.popFirst()
      }
    }
  }

  private mutating func nextDate() -> Date? {
    while let first = waiting.first, !isCurrent(first.node, .waiting) { waiting.popFirst() }
    return waiting.first?.date
  }
}
