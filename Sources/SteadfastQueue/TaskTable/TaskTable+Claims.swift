#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Leases the first tasks.
  ///
  /// O(log n) for each task, however many names the request lists. Each name that has ready tasks
  /// and no room costs one more look if it comes before others. If the request lists fewer than
  /// half as many names as have ready tasks, and allows no others, each of its names costs one look
  /// instead.
  mutating func claim(_ request: ClaimRequest) -> Claim {
    promote(until: request.now)
    claimCount += 1
    var tasks: [ClaimedTask] = []
    let listsFew = request.otherNames <= 0 && request.names.count < ranking.count / 2
    let leavesMore =
      listsFew ? takeByName(for: request, into: &tasks) : takeByRank(for: request, into: &tasks)
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
    let record = entries[slot].record
    return ClaimedTask(record: record, lease: Lease(id: record.id, token: token))
  }

  /// Takes tasks of the lanes in the order of the ranking.
  ///
  /// - Returns: Whether the limit has left any tasks that could be taken.
  private mutating func takeByRank(
    for request: ClaimRequest,
    into tasks: inout [ClaimedTask]
  ) -> Bool {
    var withoutRoom: [RankedLane] = []
    defer { for lane in withoutRoom { ranking.insert(lane) } }
    while let top = ranking.first {
      guard hasRoom(top.lane, for: request) else {
        ranking.popFirst()
        withoutRoom.append(top)
        continue
      }
      guard tasks.count < request.limit else { return true }
      tasks.append(leaseFirst(of: top.lane))
    }
    return false
  }

  /// Does what `takeByRank` does, for a request that lists few of the names with ready tasks.
  private mutating func takeByName(
    for request: ClaimRequest,
    into tasks: inout [ClaimedTask]
  ) -> Bool {
    var line = OrderedLine<RankedLane>()
    for name in request.names.keys {
      guard let lane = laneIndices[name], let first = lanes[lane].ready.first else { continue }
      line.insert(RankedLane(first: first, lane: lane))
    }
    while let top = line.popFirst() {
      guard hasRoom(top.lane, for: request) else { continue }
      guard tasks.count < request.limit else { return true }
      tasks.append(leaseFirst(of: top.lane))
      guard let next = lanes[top.lane].ready.first else { continue }
      line.insert(RankedLane(first: next, lane: top.lane))
    }
    return false
  }

  /// Returns whether this claim may take a task of the lane; looks its name up once.
  private mutating func hasRoom(_ lane: Int, for request: ClaimRequest) -> Bool {
    if lanes[lane].room.claim != claimCount {
      let room = request.names[lanes[lane].name] ?? request.otherNames
      lanes[lane].room = (claimCount, room)
    }
    return lanes[lane].room.count > 0
  }

  private mutating func leaseFirst(of lane: Int) -> ClaimedTask {
    guard let first = lanes[lane].ready.popFirst() else {
      preconditionFailure("a lane without ready tasks stood in the ranking")
    }
    entries[first.node.slot].isInLine = false
    rank(lane)
    lanes[lane].room.count -= 1
    return lease(first.node.slot)
  }

  /// Makes the tasks ready that have become available.
  private mutating func promote(until now: Date) {
    if presumesHorizon {
      presumesHorizon = false
      if now < horizon { withdraw(to: now) }
    }
    // If the clock went back, the horizon follows once no task is ready.
    horizon = readyCount > 0 ? max(horizon, now) : now
    while let first = waiting.first, first.date <= horizon {
      waiting.popFirst()
      entries[first.node.slot].isInLine = false
      lineUp(first.node.slot)
    }
  }
}
