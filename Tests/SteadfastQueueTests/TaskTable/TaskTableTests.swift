import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskTableTests {
  var table = TaskTable()

  // MARK: Order

  @Test mutating func `tasks are ordered by priority, then by date, then by insertion`() {
    table.insert(.make(1, priority: .low))
    table.insert(.make(2, available: -1))
    table.insert(.make(3, available: -5))
    table.insert(.make(4, available: -1))
    table.insert(.make(5, priority: .high))
    #expect(table.claim(9).numbers == [5, 3, 2, 4, 1])
  }

  @Test mutating func `a name whose tasks were all removed is distinct from the empty name`() {
    for number in [1, 2, 3] as [Int] {
      let name = number == 2 ? "" : "Note"
      table.insert(.make(number, name: name))
      #expect(table.brokenInvariants() == [])
      #expect(table.claim(1, [name + "other": .max]).numbers == [])
      let removal = table.stage(.remove(.numbered(number)))
      table.commit(removal)
      #expect(table.brokenInvariants() == [])
    }
  }

  @Test mutating func `a task is not claimed before its date`() {
    table.insert(.make(1, available: 60))
    #expect(table.claim(1, at: 59.9).numbers == [])
    #expect(table.claim(1, at: 60).numbers == [1])
  }

  @Test mutating func `a claim reports when the next task is available`() {
    table.insert(.make(1))
    table.insert(.make(2))
    table.insert(.make(3, available: 60))
    func request(_ limit: Int) -> ClaimRequest {
      ClaimRequest(limit: limit, names: ["Note": .max], now: .seconds(1))
    }
    #expect(table.claim(request(1)).nextDate == .seconds(1))
    #expect(table.claim(request(1)).nextDate == .seconds(60))
    #expect(
      table.claim(ClaimRequest(limit: 1, names: ["Note": .max], now: .seconds(60))).nextDate == nil
    )
  }

  @Test mutating func `a claim respects the limit of each name`() {
    for number in 1...4 { table.insert(.make(number, name: number < 4 ? "A" : "B")) }
    #expect(table.claim(9, ["A": 2, "B": 5]).numbers == [1, 2, 4])
  }

  @Test mutating func `tasks whose names no claim requests remain, and do not delay other tasks`() {
    table.insert(.make(1, name: "Unknown", priority: .high))
    table.insert(.make(2))
    #expect(table.claim(9).numbers == [2])
    #expect(table.count(matching: .unfinished) == 2)
  }

  @Test mutating func `far-future tasks of high priority don't delay ready tasks`() {
    for number in 1...1000 { table.insert(.make(number, priority: .high, available: 1e9)) }
    table.insert(.make(1001, priority: .low))
    #expect(table.claim(1).numbers == [1001])
  }

  // MARK: Leases

  @Test mutating func `a claimed task is not claimed again until it is released`() {
    table.insert(.make(1))
    let claimed = table.claim(1)
    #expect(table.claim(1).isEmpty)
    #expect(table.apply([.release(claimed[0].lease)]) == [.done])
    #expect(table.claim(1).numbers == [1])
  }

  @Test mutating func `a released task returns to its previous position in the order`() {
    for number in 1...3 { table.insert(.make(number)) }
    let first = table.claim(1)
    _ = table.apply([.release(first[0].lease)])
    #expect(table.claim(3).numbers == [1, 2, 3])
  }

  @Test mutating func `a retried task is ordered after other tasks with its priority and date`() {
    for number in 1...3 { table.insert(.make(number)) }
    let first = table.claim(1)
    _ = table.apply([
      .retry(
        first[0].lease,
        availableDate: .seconds(0),
        retryCount: 1,
        failure: TaskFailure(reason: "no", date: .seconds(0))
      )
    ])
    #expect(table.claim(3).numbers == [2, 3, 1])
  }

  @Test mutating func `a change with an old lease is stale`() {
    table.insert(.make(1))
    let old = table.claim(1)[0].lease
    _ = table.apply([.release(old)])
    let current = table.claim(1)[0].lease
    #expect(table.apply([.succeed(old, at: .seconds(1), retains: true)]) == [.stale])
    #expect(table.apply([.succeed(current, at: .seconds(1), retains: false)]) == [.done])
    #expect(table.apply([.succeed(current, at: .seconds(1), retains: false)]) == [.stale])
  }

  @Test mutating func `a retry stores the failure and resets the interruption count`() throws {
    var record = TaskRecord.make(1)
    record.interruptionCount = 3
    table.insert(record)
    let claimed = table.claim(1)
    let failure = TaskFailure(reason: "no route", date: .seconds(5))
    _ = table.apply([
      .retry(claimed[0].lease, availableDate: .seconds(9), retryCount: 1, failure: failure)
    ])
    let found = try #require(table.record(of: .numbered(1)))
    #expect(found.lastError == "no route")
    #expect(found.failedDate == .seconds(5))
    #expect(found.availableDate == .seconds(9))
    #expect(found.retryCount == 1)
    #expect(found.interruptionCount == 0)
    #expect(found.state == .waiting)
  }

  // MARK: Ended tasks

  @Test mutating func `ended tasks are pruned by count, the oldest first`() {
    for number in 1...5 { table.insert(.make(number)) }
    for claimed in table.claim(5) {
      _ = table.apply([.succeed(claimed.lease, at: .seconds(1), retains: true)])
    }
    _ = table.apply([.prune(.succeeded, endedBefore: nil, keepingLatest: 2, now: .distantPast)])
    let left = table.tasks(matching: TaskFilter(), after: nil, limit: 9)
    #expect(left.map(\.id) == [.numbered(4), .numbered(5)])
    #expect(left.allSatisfy { $0.state == .succeeded })
  }

  @Test mutating func `ended tasks are pruned by age`() {
    for number in 1...3 { table.insert(.make(number)) }
    for (claimed, date) in zip(table.claim(3), [10.0, 20, 30]) {
      let failure = TaskFailure(reason: "no", date: .seconds(date))
      _ = table.apply([.abandon(claimed.lease, failure: failure, retains: true)])
    }
    _ = table.apply([
      .prune(.abandoned, endedBefore: .seconds(20), keepingLatest: nil, now: .seconds(0))
    ])
    #expect(table.count(matching: .deadLetters) == 2)
  }

  @Test mutating func `a parked task is not claimed until it is unparked`() {
    table.insert(.make(1))
    let failure = TaskFailure(reason: "can't be read", date: .seconds(1))
    _ = table.apply([.park(table.claim(1)[0].lease, failure: failure)])
    #expect(table.claim(1).isEmpty)
    #expect(table.count(matching: TaskFilter(states: [.parked])) == 1)
    _ = table.apply([.unpark(name: "Other"), .unpark(name: "Note")])
    #expect(table.claim(1).numbers == [1])
  }

  // MARK: Staging

  @Test mutating func `a task is not claimed before its insertion is committed`() {
    let staged = table.stage(.insert(.make(1, key: "k"), onDuplicate: .keep))
    #expect(table.claim(1).isEmpty)
    #expect(table.count(matching: TaskFilter()) == 0)
    #expect(table.record(of: .numbered(1)) == nil)
    table.commit(staged)
    #expect(table.claim(1).numbers == [1])
  }

  @Test mutating func `an insertion that is rolled back leaves no trace`() {
    let staged = table.stage(.insert(.make(1, key: "k"), onDuplicate: .keep))
    table.rollBack(staged)
    #expect(table.insert(.make(2, key: "k")) == .done)
    #expect(table.claim(9).numbers == [2])
  }

  @Test mutating func `a replacement that is rolled back leaves the original task in place`() {
    table.insert(.make(1, key: "k"))
    table.insert(.make(2))
    let staged = table.stage(.insert(.make(3, key: "k"), onDuplicate: .replace))
    #expect(table.claim(9).numbers == [2])
    table.rollBack(staged)
    #expect(table.insert(.make(4, key: "k")) == .duplicate(of: .numbered(1)))
    #expect(table.claim(9).numbers == [1])
  }

  @Test mutating func `a task with a staged change accepts no other change`() {
    table.insert(.make(1))
    let lease = table.claim(1)[0].lease
    let staged = table.stage(.succeed(lease, at: .seconds(1), retains: false))
    #expect(table.stage(.release(lease)).outcome == .stale)
    table.rollBack(staged)
    #expect(table.apply([.release(lease)]) == [.done])
  }

  @Test func `parked tasks are unparked even if a later change is rolled back`() {
    var table = TaskTable()
    let record = TaskRecord(
      id: TaskID(high: 1, low: 1),
      name: "A",
      payload: StoredPayload(Array("{}".utf8), format: .json),
      createdDate: Date(timeIntervalSince1970: 0),
      state: .parked,
      availableDate: Date(timeIntervalSince1970: 0)
    )
    _ = table.apply([.insert(record, onDuplicate: .keep)])
    let unpark = table.stage([.unpark(name: "A")])
    let cancel = table.stage([
      .cancel(.unclaimed(record.id), at: Date(timeIntervalSince1970: 1), retains: false)
    ])
    for c in unpark { table.commit(c) }
    for c in cancel.reversed() { table.rollBack(c) }
    #expect(table.record(of: record.id)?.state == .waiting)
  }

  @Test func `a rejected write leaves no pruning staged`() {
    var table = TaskTable()
    let record = TaskRecord(
      id: TaskID(high: 1, low: 1),
      name: "A",
      payload: StoredPayload(Array("{}".utf8), format: .json),
      createdDate: Date(timeIntervalSince1970: 0),
      availableDate: Date(timeIntervalSince1970: 0)
    )
    _ = table.apply([.insert(record, onDuplicate: .keep)])
    let staged = table.stage([
      .prune(.abandoned, endedBefore: nil, keepingLatest: 1, now: .distantPast),
      .insert(record, onDuplicate: .keep),
    ])
    for c in staged.reversed() { table.rollBack(c) }
    #expect(table.ended.stagedPrunes == 0)
  }
}
