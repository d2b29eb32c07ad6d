import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskRecordRebaseTests {
  /// A task by its created, failed and available dates, and the last two after the clock went back
  /// to 100.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let before: (created: Double, failed: Double?, available: Double)
    let after: (failed: Double?, available: Double)
  }

  @Test(arguments: [
    Case(
      testDescription: "a retry in the future keeps its delay",
      before: (0, 5000, 5010),
      after: (100, 110)
    ),
    Case(
      testDescription: "a retry due at once is due now",
      before: (0, 5000, 5000),
      after: (100, 100)
    ),
    Case(
      testDescription: "a failure in the past stays",
      before: (0, 99, 5000),
      after: (99, 5000)
    ),
    Case(
      testDescription: "a new task due at once is due now",
      before: (5000, nil, 5000),
      after: (nil, 100)
    ),
    Case(
      testDescription: "a chosen date stays",
      before: (5000, nil, 5001),
      after: (nil, 5001)
    ),
    Case(
      testDescription: "a date in the past stays",
      before: (5000, nil, 99),
      after: (nil, 99)
    ),
  ])
  func `what the queue dated is moved, and nothing else`(test: Case) {
    var record = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload([], format: .binary),
      createdDate: .seconds(test.before.created),
      availableDate: .seconds(test.before.available),
      failedDate: test.before.failed.map(Date.seconds)
    )
    let wasMoved = record.rebase(to: .seconds(100))
    #expect(record.availableDate == .seconds(test.after.available))
    #expect(record.failedDate == test.after.failed.map(Date.seconds))
    #expect(wasMoved == (test.before.available != test.after.available))
    let wasMovedAgain = record.rebase(to: .seconds(100))
    #expect(!wasMovedAgain)
  }
}
