import Foundation
import Testing

@testable import SteadfastQueue

/// Tests changes of tasks with dependencies while staged changes are being written to a file.
@Suite struct StagedDependencyTests {
  private var table = TaskTable()
  private var lines: [JournalEntry] = []
  private var staged: [StagedChange] = []

  private static func cancel(_ number: Int) -> TaskChange {
    .cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: true)
  }

  private static func restart(_ number: Int) -> TaskChange {
    .restart(.unclaimed(.numbered(number)), availableDate: .seconds(0))
  }

  private mutating func insert(
    _ number: Int,
    after numbers: Set<Int> = [],
    _ rule: DependencyRule = .allSucceeded,
    key: String? = nil
  ) throws {
    let dependencies = TaskDependencies(on: Set(numbers.map(TaskID.numbered)), rule: rule)
    let record = TaskRecord.make(number, key: key, dependencies: dependencies)
    try perform(.insert(record, onDuplicate: .keep))
  }

  /// Stages a change, and adds its line.
  private mutating func stage(_ change: TaskChange) throws -> ChangeOutcome {
    let staged = table.stage(change)
    if staged.isKept {
      let plain = try JournalBody(.change(change))
      lines.append((table.decision(on: staged).map(plain.adding) ?? plain).entry)
      self.staged.append(staged)
    }
    return staged.outcome
  }

  private mutating func commit() { for _ in staged { commitFirst() } }
  private mutating func commitFirst() { table.commit(staged.removeFirst()) }

  private mutating func perform(_ change: TaskChange) throws {
    _ = try stage(change)
    commit()
  }

  private mutating func claimOne() throws -> Lease {
    let lease = try #require(table.claim(1).first).lease
    lines.append(.begin(lease.id))
    return lease
  }

  private func state(_ number: Int) -> TaskState? { table.record(of: .numbered(number))?.state }

  /// Compares the table with a table that is read from the lines.
  private func checkLines() throws {
    var found = TaskTable()
    for (number, line) in lines.enumerated() {
      let isApplied = found.replay(line)
      #expect(isApplied, "line \(number): \(line)")
    }
    var live = table
    live.interruptLeased()
    found.interruptLeased()
    #expect(try live.contentLinesWithRanks() == found.contentLinesWithRanks())
    #expect(live.brokenInvariants() == [])
  }

  @Test
  mutating func `a cancelled task whose key is held stays cancelled even if the holder ends first`()
    throws
  {
    try insert(1)
    try insert(2, after: [1], key: "k")
    try perform(Self.cancel(1))
    try insert(3, key: "k")
    let lease = try claimOne()
    let first = try stage(.succeed(lease, at: .seconds(2), retains: true))
    #expect(first == .done)
    let second = try stage(Self.restart(1))
    #expect(second == .done)
    commit()
    #expect(state(1) == .waiting && state(2) == .cancelled)
    try checkLines()
  }

  @Test mutating func `a released task rejects changes while a staged cancellation cascades to it`()
    throws
  {
    try insert(1)
    try insert(2, after: [1])
    try perform(.succeed(claimOne(), at: .seconds(1), retains: true))
    let lease = try claimOne()
    try perform(Self.restart(1))
    let first = try stage(.release(lease))
    #expect(first == .done)
    let second = try stage(Self.cancel(1))
    #expect(second == .done)
    commitFirst()
    let third = try stage(.pause(.unclaimed(.numbered(2))))
    #expect(third == .stale)
    commit()
    #expect(state(2) == .cancelled)
    try checkLines()
  }

  @Test(arguments: [true, false])
  mutating func `a restarted task rejects changes while a staged cancellation cascades to it`(
    retains: Bool
  ) throws {
    try insert(1)
    try insert(2)
    try insert(3, after: [1, 2])
    try perform(Self.cancel(1))
    _ = try stage(Self.restart(1))
    _ = try stage(.cancel(.unclaimed(.numbered(2)), at: .seconds(1), retains: retains))
    commitFirst()
    let paused = try stage(.pause(.unclaimed(.numbered(3))))
    #expect(paused == .stale)
    let cancelled = try stage(Self.cancel(3))
    #expect(cancelled == .stale)
    let record = TaskRecord.make(4, dependencies: TaskDependencies(on: [.numbered(3)]))
    let added = try stage(.insert(record, onDuplicate: .keep))
    #expect(added == .unmetDependency(.numbered(3)))
    commit()
    #expect(state(3) == (retains ? .cancelled : nil))
    try checkLines()
  }

  @Test mutating func `a cancelled task rejects changes while a staged removal cascades to it`()
    throws
  {
    try insert(1)
    try insert(2)
    try insert(3, after: [1, 2])
    try perform(Self.cancel(1))
    try perform(Self.cancel(2))
    _ = try stage(Self.restart(1))
    _ = try stage(.remove(.numbered(2)))
    commitFirst()
    let restarted = try stage(Self.restart(3))
    #expect(restarted == .stale)
    let removed = try stage(.remove(.numbered(3)))
    #expect(removed == .stale)
    commit()
    #expect(state(3) == nil)
    try checkLines()
  }

  @Test mutating func `a new task can't depend on a task whose removal is staged`() throws {
    try insert(1)
    try perform(Self.cancel(1))
    let first = try stage(.remove(.numbered(1)))
    #expect(first == .done)
    let dependencies = TaskDependencies(on: [.numbered(1)], rule: .allEnded)
    let record = TaskRecord.make(2, dependencies: dependencies)
    let second = try stage(.insert(record, onDuplicate: .keep))
    #expect(second == .unmetDependency(.numbered(1)))
    commit()
    try checkLines()
  }

  @Test mutating func `a new task can't depend on a task that a staged cancellation cancels`()
    throws
  {
    try insert(1)
    try insert(2, after: [1])
    let first = try stage(Self.cancel(1))
    #expect(first == .done)
    let record = TaskRecord.make(3, dependencies: TaskDependencies(on: [.numbered(2)]))
    let second = try stage(.insert(record, onDuplicate: .keep))
    #expect(second == .unmetDependency(.numbered(2)))
    commit()
    #expect(state(2) == .cancelled)
    try checkLines()
  }
}
