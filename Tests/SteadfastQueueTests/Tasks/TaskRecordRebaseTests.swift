import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskRecordRebaseTests {
  /// The dates of a task before and after the clock goes back to 100.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let before: (created: Double, failed: Double?, available: Double, from: Double?)
    let after: (created: Double, failed: Double?, available: Double, from: Double?)
  }

  @Test(arguments: [
    Case(
      testDescription: "a retry in the future keeps its delay",
      before: (0, 5000, 5010, 5000),
      after: (0, 100, 110, 100)
    ),
    Case(
      testDescription: "a retry due at once is due now",
      before: (0, 5000, 5000, 5000),
      after: (0, 100, 100, 100)
    ),
    Case(
      testDescription: "a failure in the past does not move, nor does its retry",
      before: (0, 99, 5000, 99),
      after: (0, 99, 5000, 99)
    ),
    Case(
      testDescription: "a snooze after a failure in the past keeps its length",
      before: (0, 99, 5010, 5000),
      after: (0, 99, 110, 100)
    ),
    Case(
      testDescription: "a new task due at once is due now",
      before: (5000, nil, 5000, nil),
      after: (100, nil, 100, 100)
    ),
    Case(
      testDescription: "a new task keeps its delay",
      before: (5000, nil, 5001, 5000),
      after: (100, nil, 101, 100)
    ),
    Case(
      testDescription: "a date that had already passed is still in the past",
      before: (5000, nil, 4990, 5000),
      after: (100, nil, 90, 100)
    ),
    Case(
      testDescription: "a chosen date does not move",
      before: (5000, nil, 5001, nil),
      after: (100, nil, 5001, nil)
    ),
    Case(
      testDescription: "a date that was chosen after a failure does not move",
      before: (5000, 5000, 5001, nil),
      after: (100, 100, 5001, nil)
    ),
    Case(
      testDescription: "a date in the past does not move",
      before: (99, nil, 99, nil),
      after: (99, nil, 99, 99)
    ),
  ])
  func `a rebase moves delays that count from a later date, but only once`(test: Case) {
    var record = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload([], format: .binary),
      createdDate: .seconds(test.before.created),
      availableDate: .seconds(test.before.available),
      countedFrom: test.before.from.map(Date.seconds),
      failedDate: test.before.failed.map(Date.seconds)
    )
    for isFirst in [true, false] {
      let wasMoved = record.rebase(to: .seconds(100))
      #expect(wasMoved == (isFirst && test.before.available != test.after.available))
      #expect(record.createdDate == .seconds(test.after.created))
      #expect(record.failedDate == test.after.failed.map(Date.seconds))
      #expect(record.availableDate == .seconds(test.after.available))
      #expect(record.countedFrom == test.after.from.map(Date.seconds))
    }
  }

  @Test func `a rebase ends a sleep for a duration, but not a sleep until a date`() {
    for origin in [5000.0, nil] {
      var record = TaskRecord.make(1, created: 4000)
      record.suspend(until: .seconds(6000), countedFrom: origin.map(Date.seconds))
      let wasMoved = record.rebase(to: .seconds(100))
      #expect(wasMoved == (origin != nil))
      #expect(record.state == (wasMoved ? .waiting : .suspended))
      #expect(record.availableDate == .seconds(wasMoved ? 100 : 6000))
    }
  }

  @Test(arguments: TaskState.allCases)
  func `a rebase keeps the distance of relative dates from the creation date, in any state`(
    state: TaskState
  ) {
    var record = TaskRecord.make(1, key: "k", created: 5000, uniqueFor: 30, maxDelay: 40)
    record.state = state
    _ = record.rebase(to: .seconds(100))
    #expect(record.uniqueUntil == .seconds(130))
    #expect(record.latestDate == .seconds(140))
  }

  @Test
  func `a rebase does not move the dates of a replacement that was made with the correct clock`() {
    var record = TaskRecord.make(1, key: "k", created: 5000)
    let new = TaskRecord.make(
      2,
      available: 110,
      key: "k",
      created: 100,
      uniqueFor: 30,
      maxDelay: 40
    )
    _ = record.takeOver(new.with { $0.countedFrom = .seconds(100) })
    _ = record.rebase(to: .seconds(101))
    #expect(record.uniqueUntil == .seconds(130))
    #expect(record.latestDate == .seconds(140))
    #expect(record.availableDate == .seconds(110))
  }
}

extension TaskRecord {
  fileprivate func with(_ change: (inout TaskRecord) -> Void) -> TaskRecord {
    var record = self
    change(&record)
    return record
  }
}
