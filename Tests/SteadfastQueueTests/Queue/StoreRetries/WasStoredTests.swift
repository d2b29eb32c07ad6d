import Foundation
import Testing

@testable import SteadfastQueue

/// Tests how a queue detects that a change is stale because an earlier call has stored it.
@Suite struct WasStoredTests {
  private static let lease = Lease(id: .numbered(1), token: 1)
  private static let target = TaskTarget.unclaimed(.numbered(1))
  private static let failure = TaskFailure(reason: "no", date: .seconds(5))

  private func changedRecord(_ change: (inout TaskRecord) -> Void) -> TaskRecord {
    var record = TaskRecord.make(1)
    change(&record)
    return record
  }

  @Test
  func `if a task is missing, its change ended it, unless other processes share the store`() {
    let ends: [TaskChange] = [
      .succeed(Self.lease, at: .seconds(5), retains: false),
      .abandon(Self.lease, failure: Self.failure, retains: false),
      .cancel(Self.target, at: .seconds(5), retains: false), .remove(.numbered(1)),
    ]
    for end in ends {
      #expect(end.wasStored(accordingTo: nil, excludesOtherQueues: true))
      #expect(!end.wasStored(accordingTo: nil, excludesOtherQueues: false))
    }
    let retry = TaskChange.retry(
      Self.lease,
      availableDate: .seconds(9),
      retryCount: 1,
      failure: nil
    )
    #expect(!retry.wasStored(accordingTo: nil, excludesOtherQueues: true))
    #expect(!TaskChange.pause(Self.target).wasStored(accordingTo: nil, excludesOtherQueues: true))
  }

  @Test(arguments: [true, false])
  func `the stored task shows whether the change was stored`(excludesOtherQueues: Bool) {
    let ended = changedRecord { record in
      record.state = .succeeded
      record.finishedDate = .seconds(5)
    }
    let success = TaskChange.succeed(Self.lease, at: .seconds(5), retains: true)
    #expect(success.wasStored(accordingTo: ended, excludesOtherQueues: excludesOtherQueues))
    let later = TaskChange.succeed(Self.lease, at: .seconds(6), retains: true)
    #expect(!later.wasStored(accordingTo: ended, excludesOtherQueues: excludesOtherQueues))
    #expect(
      !success.wasStored(
        accordingTo: changedRecord { _ in },
        excludesOtherQueues: excludesOtherQueues
      )
    )
    let cancellation = TaskChange.cancel(Self.target, at: .seconds(5), retains: true)
    #expect(!cancellation.wasStored(accordingTo: ended, excludesOtherQueues: excludesOtherQueues))
    let retried = changedRecord { record in
      record.retryCount = 2
      record.availableDate = .seconds(9)
    }
    for (count, date, expected) in [(2, 9.0, true), (1, 9, false), (2, 8, false)] {
      let retry = TaskChange.retry(
        Self.lease,
        availableDate: .seconds(date),
        retryCount: count,
        failure: nil
      )
      #expect(
        retry.wasStored(accordingTo: retried, excludesOtherQueues: excludesOtherQueues) == expected
      )
    }
    for (change, state) in [
      (TaskChange.pause(Self.target), TaskState.paused), (.resume(.numbered(1)), .waiting),
      (.park(Self.lease, failure: Self.failure), .parked), (.release(Self.lease), .waiting),
    ] {
      for found in TaskState.allCases where !found.isFinished {
        let record = changedRecord { $0.state = found }
        #expect(
          change.wasStored(accordingTo: record, excludesOtherQueues: excludesOtherQueues)
            == (found == state)
        )
      }
    }
    #expect(
      !TaskChange.remove(.numbered(1)).wasStored(
        accordingTo: ended,
        excludesOtherQueues: excludesOtherQueues
      )
    )
  }

  @Test func `a woken task proves that its suspension was stored`() {
    let woken = changedRecord { $0.wake() }
    let suspension = TaskChange.suspend(Self.lease, until: .distantFuture, awaiting: [])
    #expect(suspension.wasStored(accordingTo: woken, excludesOtherQueues: false))
  }

  @Test func `a resent insertion matches a task with the same payload that isn't newer`() {
    let task = TaskRecord.make(1, created: 5)
    #expect(task.isStored(as: changedRecord { $0.retryCount = 7 }.withCreationDate(seconds: 5)))
    #expect(task.isStored(as: TaskRecord.make(1, created: 5.000_000_5)))
    #expect(!task.isStored(as: TaskRecord.make(1, created: 5.001)))
    // The clock was ahead when the insertion was sent.
    #expect(task.isStored(as: TaskRecord.make(1, created: 4)))
    #expect(!task.isStored(as: TaskRecord.make(2, created: 5)))
    let other = task.replacing(payload: StoredPayload([1], format: .json))
    #expect(!task.isStored(as: other))
  }

  @Test func `an insertion that is only staged doesn't count as stored`() {
    var table = TaskTable()
    let insertion = TaskChange.insert(.make(1), onDuplicate: .keep)
    let first = table.stage(insertion)
    #expect(table.stage(insertion).outcome == .identityTaken)
    _ = table.commit(first)
    let again = table.stage(insertion)
    #expect(again.outcome == .done && !again.isKept)
    let outcomes = table.apply([insertion, .insert(.make(1, created: -9), onDuplicate: .keep)])
    #expect(outcomes == [.batchRefused, .identityTaken])
  }
}

extension TaskRecord {
  /// The task with another creation date.
  fileprivate func withCreationDate(seconds: Double) -> TaskRecord {
    var record = TaskRecord.make(1, created: seconds)
    record.retryCount = retryCount
    return record
  }
}
