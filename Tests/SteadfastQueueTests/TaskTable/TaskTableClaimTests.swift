import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests claims that request tasks of many names.
@Suite struct TaskTableClaimTests {
  private var table = TaskTable()
  private var reference = ReferenceTable()

  private mutating func apply(_ change: TaskChange) {
    #expect(table.apply([change]) == reference.apply([change]))
  }

  private mutating func claim(_ request: ClaimRequest) -> [ClaimedTask] {
    let claim = table.claim(request)
    var more = request
    more.limit += 1
    let expected = reference.claimable(more)
    #expect(claim.tasks.map(\.lease.id) == expected.prefix(request.limit).map(\.record.id))
    if expected.count > request.limit { #expect(claim.nextDate == request.now) }
    if claim.nextDate == request.now { #expect(expected.count > request.limit) }
    for task in claim.tasks { reference.lease(task.lease) }
    return claim.tasks
  }

  /// Random names, each with a random limit, which may be zero.
  private static func limits(
    of names: Int,
    among all: Int,
    _ random: inout SplitMix64
  ) -> [String: Int] {
    var limits: [String: Int] = [:]
    while limits.count < names {
      let name = "name \(Int.random(in: 0..<all, using: &random))"
      limits[name] = [0, 1, 2, .max].randomElement(using: &random)
    }
    return limits
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 8)))
  mutating func `tasks are claimed in the same order, whatever names the request lists`(
    seed: UInt64
  ) {
    var random = SplitMix64(seed: seed)
    let nameCount = 30
    var now = 100.0
    var leases: [Lease] = []
    for number in 1...400 {
      now += Double(random.next() % 3)
      let record = TaskRecord.make(
        number,
        name: "name \(random.next() % UInt64(nameCount))",
        priority: TaskQueue.Priority(rawValue: Int(random.next() % 3)),
        available: now + Double(random.next() % 30) - 20
      )
      apply(.insert(record, onDuplicate: .keep))
      let other = TaskID.numbered(1 + Int(random.next() % UInt64(number)))
      switch random.next() % 8 {
      case 0: apply(.cancel(.unclaimed(other), at: .seconds(now), retains: false))
      case 1: apply(.reschedule(.unclaimed(other), availableDate: .seconds(now + 5)))
      case 2: if let lease = leases.popLast() { apply(.release(lease)) }
      default: break
      }
      guard number.isMultiple(of: 5) else { continue }
      let names = Self.limits(
        of: [1, 3, 10, nameCount].randomElement(using: &random) ?? 1,
        among: nameCount + 10,
        &random
      )
      leases += claim(
        ClaimRequest(
          limit: Int(random.next() % 5),
          names: names,
          otherNames: [0, 0, 1, .max].randomElement(using: &random) ?? 0,
          now: .seconds(now)
        )
      ).map(\.lease)
      if number.isMultiple(of: 40) { #expect(table.brokenInvariants() == []) }
    }
    _ = claim(ClaimRequest(limit: .max - 1, names: [:], otherNames: .max, now: .seconds(1e6)))
    #expect(table.lanes.queues[0].ranking.isEmpty)
  }

  @Test mutating func `names whose tasks were all removed use no memory`() {
    for round in 0..<10 {
      for number in 1...100 {
        table.insert(.make(number, name: "user \(round) \(number)"))
      }
      let request = ClaimRequest(limit: 100, names: [:], otherNames: .max, now: .seconds(0))
      for task in table.claim(request).tasks {
        _ = table.apply([.succeed(task.lease, at: .seconds(1), retains: false)])
      }
      #expect(table.lanes.queues[0].ranking.isEmpty && table.lanes.queues[0].indices.isEmpty)
      #expect(table.lanes.all.count == 100)
    }
  }
}
