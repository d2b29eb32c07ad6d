import Foundation
import Testing

@testable import SteadfastQueue

/// Tests how the end or the restart of a task affects several dependent tasks.
@Suite struct ConsequenceTests {
  var table = TaskTable()

  /// Inserts a task that has dependencies or belongs to a batch.
  private mutating func insert(
    _ number: Int,
    after numbers: some Sequence<Int> = [],
    _ rule: DependencyRule = .allSucceeded,
    before follower: Int? = nil,
    key: String? = nil
  ) {
    let dependencies = TaskDependencies(
      on: Set(numbers.map(TaskID.numbered)),
      rule: rule,
      follower: follower.map(TaskID.numbered)
    )
    #expect(table.insert(.make(number, key: key, dependencies: dependencies)) == .done)
  }

  @discardableResult
  private mutating func cancel(_ number: Int) -> ChangeOutcome {
    table.apply([.cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: true)])[0]
  }

  @discardableResult
  private mutating func restart(_ number: Int) -> ChangeOutcome {
    table.apply([.restart(.unclaimed(.numbered(number)), availableDate: .seconds(0))])[0]
  }

  private func dependencies(_ number: Int) throws -> TaskDependencies {
    try #require(table.record(of: .numbered(number))).dependencies
  }

  private func state(_ number: Int) -> TaskState? { table.record(of: .numbered(number))?.state }

  private func done(_ numbers: Int..., batch: BatchProgress? = nil) -> ChangeOutcome {
    .doneWithConsequences(Consequences(tasks: numbers.map(TaskID.numbered), batch: batch))
  }

  @Test
  mutating func `the cause of a cancellation is the failed dependency with the lowest ID`()
    throws
  {
    insert(1)
    insert(2, after: [1])
    insert(3, after: [1])
    insert(4, after: [2, 3])
    insert(5, after: [4, 3])
    #expect(cancel(1) == done(2, 3, 4, 5))
    #expect(try [2, 3, 4, 5].map { try dependencies($0).cause?.low } == [1, 1, 2, 3])
    #expect(restart(1) == done(2, 3, 4, 5))
    #expect(table.brokenInvariants() == [])
  }

  @Test
  mutating func `a task that stays cancelled does not block its key for a restarted task`()
    throws
  {
    insert(1)
    insert(2)
    insert(3, after: [1, 2], key: "k")
    #expect(cancel(2) == done(3))
    insert(4, after: [1], key: "k")
    #expect(cancel(1) == done(4))
    #expect(restart(1) == done(4))
    #expect(state(4) == .waiting && state(3) == .cancelled)
    #expect(try dependencies(3).cause == .numbered(2))
    #expect(table.brokenInvariants() == [])
  }

  @Test
  mutating func `of two cancelled tasks with one key, the first to be restarted gets the key`()
    throws
  {
    insert(1)
    insert(6)
    insert(2, after: [1, 6])
    for lease in table.claim(9).map(\.lease) {
      _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
    }
    let lease = table.claim(9)[0].lease
    restart(1)
    restart(6)
    insert(4, after: [1], key: "k")
    // Task 2 is running, so it isn't cancelled until task 6 is cancelled.
    #expect(cancel(1) == done(4))
    #expect(table.apply([.release(lease)]) == [.done])
    insert(3, after: [2], key: "k")
    #expect(cancel(6) == done(2, 3))
    #expect(restart(6) == done())
    #expect(try dependencies(2).cause == .numbered(1))
    #expect(restart(1) == done(2, 4))
    #expect(try dependencies(3).cause == nil)
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `the progress of a batch counts cascaded cancellations and restarts`()
    throws
  {
    insert(9, .allEnded)
    insert(1, before: 9)
    insert(2, after: [1], before: 9)
    insert(3, before: 9)
    #expect(cancel(1) == done(2, batch: BatchProgress(total: 3, failed: 2)))
    #expect(restart(1) == done(2, batch: BatchProgress(total: 3)))
  }

  @Test mutating func `no progress is reported for a follower that was removed`() {
    insert(9)
    insert(1, before: 9)
    let change = TaskChange.cancel(.unclaimed(.numbered(1)), at: .seconds(1), retains: false)
    #expect(table.apply([change]) == [done(9)])
    #expect(table.count(matching: TaskFilter()) == 0)
  }

  @Test mutating func `a task may depend on a follower whose batch grows in the same write`() {
    insert(9)
    let member = TaskRecord.make(1, dependencies: TaskDependencies(follower: .numbered(9)))
    let waiting = TaskRecord.make(2, dependencies: TaskDependencies(on: [.numbered(9)]))
    let insertions = [member, waiting].map { TaskChange.insert($0, onDuplicate: .keep) }
    #expect(table.apply(insertions) == [.done, .done])
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `a task may depend on a dependent of a task restarted in the same write`() {
    insert(1)
    insert(2, after: [1])
    let lease = table.claim(1)[0].lease
    _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
    let third = TaskRecord.make(3, dependencies: TaskDependencies(on: [.numbered(2)]))
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .seconds(0))
    let insertion = TaskChange.insert(third, onDuplicate: .keep)
    #expect(table.apply([restart, insertion]) == [done(), .done])
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `only the first of many failed dependencies are recorded`() throws {
    let numbers = 1...(TaskDependencies.mostFailures + 100)
    for number in numbers {
      insert(number)
      cancel(number)
    }
    insert(9_999, after: numbers, .allEnded)
    let recorded = try dependencies(9_999).failed.keys.sorted()
    #expect(recorded == numbers.prefix(TaskDependencies.mostFailures).map(TaskID.numbered))
  }

  @Test
  mutating func `an insertion ignores failures, a cause and batch progress in the record`() throws {
    insert(1)
    let dependencies = TaskDependencies(
      on: [.numbered(1)],
      failed: [.numbered(1): .abandoned],
      cause: .numbered(7),
      batch: BatchProgress(total: 4, succeeded: 1)
    )
    table.insert(.make(2, dependencies: dependencies))
    #expect(try self.dependencies(2) == TaskDependencies(on: [.numbered(1)]))
    let lease = table.claim(1)[0].lease
    _ = table.apply([.succeed(lease, at: .seconds(1), retains: false)])
    #expect(table.claim(9).numbers == [2])
  }

  @Test
  mutating func `a finished task of a batch counts for a follower that is inserted later`() throws {
    var ended = TaskRecord.make(1, dependencies: TaskDependencies(follower: .numbered(9)))
    ended.state = .succeeded
    ended.finishedDate = .seconds(1)
    let insertions = [ended, .make(9)].map { TaskChange.insert($0, onDuplicate: .keep) }
    #expect(table.apply(insertions) == [.done, .done])
    #expect(try dependencies(9).batch == BatchProgress(total: 1, succeeded: 1))
  }
}
