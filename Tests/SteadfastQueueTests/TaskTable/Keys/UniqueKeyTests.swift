import Foundation
import Testing

@testable import SteadfastQueue

/// Tests unique keys while staged changes are not committed yet.
@Suite struct UniqueKeyTests {
  var table = TaskTable()

  private mutating func begin() -> Lease {
    table.insert(.make(1, key: "k"))
    return table.claim(1)[0].lease
  }

  private func role(_ number: Int) -> UniqueKeyRole? {
    table.record(of: .numbered(number))?.keyRole
  }

  @Test mutating func `a task that is added while the holder's end is staged becomes the holder`()
    throws
  {
    let lease = begin()
    let success = TaskChange.succeed(lease, at: .seconds(1), retains: true)
    let end = table.stage(success)
    let addition = table.stage(.insert(.make(2, key: "k"), onDuplicate: .keep))
    #expect(addition.outcome == .done)
    // A third task is a duplicate of the second.
    #expect(
      table.stage(.insert(.make(3, key: "k"), onDuplicate: .keep)).outcome
        == .duplicate(of: .numbered(2))
    )
    table.commit(end)
    #expect(
      table.stage(.insert(.make(4, key: "k"), onDuplicate: .keep)).outcome
        == .duplicate(of: .numbered(2))
    )
    #expect(table.claim(9).numbers == [])
    table.commit(addition)
    #expect(role(1) == nil && role(2) == .holder)
    #expect(table.brokenInvariants() == [])
    #expect(table.claim(9).numbers == [2])
    let found = try read([
      .addition(.make(1, key: "k"), .holder), .begin(.numbered(1)), .change(success),
      .addition(.make(2, key: "k"), .successor),
    ])
    #expect(found.record(of: .numbered(2))?.keyRole == .holder)
    #expect(found.brokenInvariants() == [])
  }

  @Test mutating func `a successor that is rolled back leaves no trace`() {
    let lease = begin()
    let addition = table.stage(.insert(.make(2, key: "k"), onDuplicate: .keep))
    table.rollBack(addition)
    #expect(table.brokenInvariants() == [])
    let retry = TaskChange.retry(lease, availableDate: .seconds(1), retryCount: 1, failure: nil)
    #expect(table.apply([retry]) == [.done])
    #expect(table.claim(9, at: 1).numbers == [1])
  }

  @Test mutating func `a rollback of a successor and of its superseding leaves no trace`() {
    let lease = begin()
    let addition = table.stage(.insert(.make(2, key: "k"), onDuplicate: .keep))
    let retry = TaskChange.retry(lease, availableDate: .seconds(1), retryCount: 1, failure: nil)
    for commitsAddition in [false, true] {
      let staged = table.stage(retry)
      #expect(staged.outcome == .superseded(by: .numbered(2)))
      if commitsAddition { table.commit(addition) }
      table.rollBack(staged)
      if !commitsAddition { #expect(table.count(matching: .unfinished) == 1) }
    }
    #expect(table.brokenInvariants() == [])
    #expect(table.apply([retry]) == [.superseded(by: .numbered(2))])
    #expect(table.brokenInvariants() == [])

    let again = table.claim(1, at: 1)[0].lease
    let third = table.stage(.insert(.make(3, key: "k"), onDuplicate: .keep))
    let second = TaskChange.retry(again, availableDate: .seconds(1), retryCount: 2, failure: nil)
    let staged = table.stage(second)
    table.rollBack(staged)
    table.rollBack(third)
    #expect(table.brokenInvariants() == [])
    #expect(table.count(matching: .unfinished) == 1)
  }

  @Test mutating func `a retry during a change of the successor leaves both tasks waiting`() throws
  {
    let lease = begin()
    table.insert(.make(2, key: "k"))
    let cancellation = TaskChange.cancel(.unclaimed(.numbered(2)), at: .seconds(1), retains: false)
    let end = table.stage(cancellation)
    let retry = TaskChange.retry(lease, availableDate: .seconds(1), retryCount: 1, failure: nil)
    let staged = table.stage(retry)
    #expect(staged.outcome == .done)
    table.rollBack(staged)
    table.rollBack(end)
    #expect(table.brokenInvariants() == [])
    // Both the holder and the successor may be waiting.
    let update = TaskChange.update(.numbered(2), TaskUpdate(priority: .high))
    let changes = [table.stage(update), table.stage(retry)]
    for change in changes { table.commit(change) }
    #expect(role(1) == .holder && role(2) == .successor)
    #expect(table.brokenInvariants() == [])
    let found = try read([
      .addition(.make(1, key: "k"), .holder), .begin(.numbered(1)),
      .addition(.make(2, key: "k"), .successor), .change(update), .change(retry),
    ])
    #expect(try found.contentLines() == table.contentLines())
    #expect(table.claim(9, at: 1).numbers == [1])
  }

  @Test mutating func `a staged superseding protects both tasks from other changes`()
    throws
  {
    let lease = begin()
    table.insert(.make(2, key: "k"))
    let failure = TaskFailure(reason: "no", date: .seconds(3))
    let retry = TaskChange.retry(lease, availableDate: .seconds(9), retryCount: 1, failure: failure)
    for commits in [false, true] {
      let staged = table.stage(retry)
      #expect(staged.outcome == .superseded(by: .numbered(2)))
      for policy: UniquePolicy in [.keep, .replace] {
        let outcome = table.stage(.insert(.make(3, key: "k"), onDuplicate: policy)).outcome
        #expect(outcome == .duplicate(of: .numbered(2)))
      }
      let end = TaskChange.cancel(.unclaimed(.numbered(2)), at: .seconds(1), retains: false)
      #expect(table.stage(end).outcome == .stale)
      if commits { table.commit(staged) } else { table.rollBack(staged) }
      #expect(table.brokenInvariants() == [])
    }
    let found = try read([
      .addition(.make(1, key: "k"), .holder), .begin(.numbered(1)),
      .addition(.make(2, key: "k"), .successor), .supersession(retry),
    ])
    #expect(try found.contentLines() == table.contentLines())
    #expect(table.record(of: .numbered(2))?.failedDate == .seconds(3))
    #expect(table.claim(9, at: 8).numbers == [])
    #expect(table.claim(9, at: 9).numbers == [2])
  }

  @Test mutating func `a task with a staged change is not replaced, and the batch is rejected`() {
    table.insert(.make(1, key: "k"))
    let pause = table.stage(.pause(.unclaimed(.numbered(1))))
    let results = table.stage([
      .insert(.make(5), onDuplicate: .keep), .insert(.make(2, key: "k"), onDuplicate: .replace),
    ])
    #expect(results.map(\.outcome) == [.batchRefused, .duplicate(of: .numbered(1))])
    table.commit(pause)
    #expect(table.insert(.make(2, key: "k"), onDuplicate: .replace) == .replaced(.numbered(1)))
    #expect(table.record(of: .numbered(1))?.state == .paused)
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `a restarted task has its key as soon as the restart is staged`() {
    let lease = begin()
    let failure = TaskFailure(reason: "no", date: .seconds(3))
    _ = table.apply([.abandon(lease, failure: failure, retains: true)])
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .seconds(1))
    let staged = table.stage(restart)
    #expect(table.insert(.make(2, key: "k")) == .duplicate(of: .numbered(1)))
    table.rollBack(staged)
    #expect(table.brokenInvariants() == [])
    #expect(table.insert(.make(2, key: "k")) == .done)
    #expect(table.stage(restart).outcome == .duplicate(of: .numbered(2)))
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `new tasks are duplicates of the ended task whose unique period ends last`() {
    for number in 1...3 {
      let window = [60.0, 90, 30][number - 1]
      table.insert(.make(number, key: "k", uniqueFor: window), onDuplicate: .replace)
      let lease = table.claim(1)[0].lease
      _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
    }
    func outcome(at date: Double) -> ChangeOutcome {
      var table = table
      return table.insert(.make(9, key: "k", created: date))
    }
    #expect(outcome(at: 50) == .duplicate(of: .numbered(2)))
    #expect(outcome(at: 90) == .done)
    _ = table.apply([.remove(.numbered(2))])
    #expect(outcome(at: 50) == .duplicate(of: .numbered(1)))
    #expect(outcome(at: 60) == .done)
    _ = table.apply([.prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: .seconds(40))])
    #expect(table.numbers == [1])
    _ = table.apply([.remove(.numbered(1))])
    #expect(outcome(at: 50) == .done)
    #expect(table.brokenInvariants() == [])
  }

  @Test
  mutating func `new tasks are duplicates of a task that was inserted as already succeeded`() throws
  {
    var old = TaskRecord.make(1, key: "k", uniqueFor: 60)
    old.state = .succeeded
    old.finishedDate = .seconds(1)
    #expect(table.insert(old) == .done)
    #expect(table.insert(.make(2, key: "k", created: 59)) == .duplicate(of: .numbered(1)))
    #expect(table.insert(.make(2, key: "k", created: 60)) == .done)
    #expect(table.brokenInvariants() == [])
    let refused = table.stage(.insert(old.replacing(id: .numbered(3)), onDuplicate: .keep))
    table.rollBack(refused)
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `a pruning skips tasks whose unique period isn't over`() {
    for number in 1...4 {
      let window = number.isMultiple(of: 2) ? nil : 60.0
      table.insert(.make(number, key: "key \(number)", uniqueFor: window))
      let lease = table.claim(1)[0].lease
      _ = table.apply([.succeed(lease, at: .seconds(Double(number)), retains: true)])
    }
    func prune(_ date: Double?, _ count: Int?, at now: Double) {
      let pruning = TaskChange.prune(
        .succeeded,
        endedBefore: date.map(Date.seconds),
        keepingLatest: count,
        now: .seconds(now)
      )
      _ = table.apply([pruning])
    }
    prune(3, nil, at: 40)
    #expect(table.numbers == [1, 3, 4])
    prune(nil, 1, at: 40)
    #expect(table.numbers == [1, 3, 4])
    prune(nil, 1, at: 60)
    #expect(table.numbers == [4])
    #expect(table.brokenInvariants() == [])
  }

  @Test func `tasks that a pruning can't remove don't count towards its limit`() {
    var table = TaskTable()
    for number in 1...3 {
      let window = number == 2 ? 90.0 : nil
      table.insert(.make(number, key: "\(number)", uniqueFor: window))
      let lease = table.claim(1)[0].lease
      _ = table.apply([.succeed(lease, at: .seconds(Double(number)), retains: true)])
    }
    func prune(at now: Double, keeping count: Int) -> TaskChange {
      .prune(.succeeded, endedBefore: nil, keepingLatest: count, now: .seconds(now))
    }
    // At 100 s, the second task's unique period is over. At 50 s, it isn't.
    _ = table.apply([prune(at: 100, keeping: 3)])
    _ = table.apply([prune(at: 50, keeping: 2)])
    #expect(table.count(matching: TaskFilter()) == 3)
    _ = table.apply([prune(at: 50, keeping: 1)])
    #expect(table.tasks(matching: TaskFilter(), after: nil, limit: 9).map(\.id.low) == [2, 3])
    #expect(table.brokenInvariants() == [])
  }
}
