#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// Leases the first tasks.
  ///
  /// O(log n) a task, however many names the request lists. Names that have ready tasks and no room
  /// cost one look each where they come before others; if there are more of them than the request
  /// lists, its names cost one look each instead.
  mutating func claim(_ request: ClaimRequest) -> Claim {
    promote(until: request.now)
    claimCount += 1
    var tasks: [ClaimedTask] = []
    let listsFew = request.otherNames <= 0 && request.names.count < ranking.count / 2
    let leavesMore =
      listsFew ? takeByName(for: request, into: &tasks) : takeByRank(for: request, into: &tasks)
    return Claim(tasks: tasks, nextDate: leavesMore ? request.now : waiting.first?.date)
  }

  /// Takes a claim back: each task returns to its place in line.
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

  /// Takes tasks of the lanes as they are ranked.
  ///
  /// Whether the limit has left any.
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

  /// As `takeByRank`, for a request that lists few of the names that have ready tasks.
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

  /// Whether this claim may take a task of the lane; its name is looked up once.
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

  /// Makes ready what has become available.
  private mutating func promote(until now: Date) {
    if presumesHorizon {
      presumesHorizon = false
      if now < horizon { withdraw(to: now) }
    }
    // A date that has gone back is taken over once no task is ready by a later one.
    horizon = readyCount > 0 ? max(horizon, now) : now
    while let first = waiting.first, first.date <= horizon {
      waiting.popFirst()
      entries[first.node.slot].isInLine = false
      lineUp(first.node.slot)
    }
  }
}
