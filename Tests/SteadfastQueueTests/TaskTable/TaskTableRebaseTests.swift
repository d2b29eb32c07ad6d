import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct TaskTableRebaseTests {
  private static func record(_ number: Int, created: Double, available: Double) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: "A",
      payload: StoredPayload([], format: .binary),
      createdDate: .seconds(created),
      availableDate: .seconds(available)
    )
  }

  private static func request(_ limit: Int, _ now: Double) -> ClaimRequest {
    ClaimRequest(limit: limit, names: ["A": .max], now: .seconds(now))
  }

  @Test(arguments: 1...100 as ClosedRange<UInt64>)
  func `a rebase after the clock was set back moves all dates that are later than the clock`(
    seed: UInt64
  ) throws {
    var random = SplitMix64(seed: seed)
    func date() -> Double { Double(random.next() % 100) }
    var table = TaskTable()
    for number in 1...60 {
      let record = Self.record(number, created: date(), available: date())
      _ = table.apply([.insert(record, onDuplicate: .keep)])
      let claimed = date()
      for task in table.claim(Self.request(Int(random.next() % 2), claimed)).tasks {
        // Earlier claims may have had later dates, but this claim must not return later tasks.
        #expect(task.record.availableDate <= .seconds(claimed))
        let failure = TaskFailure(reason: "no", date: .seconds(date()))
        let retry = TaskChange.retry(
          task.lease,
          availableDate: .seconds(date()),
          retryCount: 1,
          failure: failure
        )
        _ = table.apply([random.next() % 2 == 0 ? retry : .park(task.lease, failure: failure)])
      }
      guard random.next() % 8 == 0 else { continue }
      let now = date()
      _ = table.apply([.rebase(.seconds(now))])
      for var record in table.tasks(matching: .unfinished, after: nil, limit: .max) {
        let wasMoved = record.rebase(to: .seconds(now))
        #expect(!wasMoved)
      }
      var copy = table
      for task in copy.claim(Self.request(.max, now)).tasks {
        #expect(task.record.availableDate <= .seconds(now))
      }
    }
  }

  @Test func `a rebase moves the dates of a task from a file like those of an inserted task`() {
    for failed in [false, true] {
      var record = Self.record(1, created: failed ? 1 : 50, available: failed ? 60 : 50)
      record.failedDate = failed ? .seconds(50) : nil
      record.countedFrom = .seconds(50)
      var tables = [TaskTable(), TaskTable(), TaskTable()]
      _ = tables[0].apply([.insert(record, onDuplicate: .keep)])
      let kept = KeptTask(record: record, position: 1, hasLostKey: false)
      let areAdded = [
        tables[1].replay(.change(.insert(record, onDuplicate: .keep))),
        tables[2].replay(.task(kept)),
      ]
      #expect(areAdded == [true, true])
      for index in tables.indices {
        _ = tables[index].apply([.rebase(.seconds(10))])
        let found = tables[index].record(of: record.id)
        #expect(found?.availableDate == .seconds(failed ? 20 : 10))
      }
    }
  }

  /// Makes a table like one that was read from a file, with tasks of these dates.
  private static func replayed(_ dates: [(created: Double, available: Double)]) -> TaskTable {
    var table = TaskTable()
    for (index, date) in dates.enumerated() {
      let record = record(index + 1, created: date.created, available: date.available)
      let wasPossible = table.replay(.change(.insert(record, onDuplicate: .keep)))
      #expect(wasPossible)
    }
    return table
  }

  @Test func `tasks that were available when a file was written are ready when it is read`() {
    var table = Self.replayed((1...10).map { (Double($0), Double($0)) } + [(5, 12)])
    #expect(table.waiting.count == 1)
    let claim = table.claim(Self.request(99, 11))
    #expect(claim.tasks.numbers == Array(1...10))
    #expect(claim.nextDate == .seconds(12))
  }

  @Test func `a clock that lags never makes a task available early`() {
    var table = Self.replayed((1...10).map { (Double($0), Double($0)) })
    var claim = table.claim(Self.request(99, 4))
    #expect(claim.tasks.numbers == Array(1...4))
    #expect(claim.nextDate == .seconds(5))
    claim = table.claim(Self.request(99, 9))
    #expect(claim.tasks.numbers == Array(5...9))
  }
}
