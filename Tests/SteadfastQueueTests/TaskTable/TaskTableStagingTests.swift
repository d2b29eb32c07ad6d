import Foundation
import Testing

@testable import SteadfastQueue

/// Tests changes while other changes are staged, but not committed yet.
@Suite struct TaskTableStagingTests {
  var table = TaskTable()

  /// A request for the ended task 1, which has the key "k".
  enum Request: CaseIterable {
    case restart, remove

    var change: TaskChange {
      switch self {
      case .restart: .restart(.unclaimed(.numbered(1)), availableDate: .seconds(5))
      case .remove: .remove(.numbered(1))
      }
    }
  }

  /// A change is copied several times between its caller and the table.
  @Test func `a change has at most 64 bytes`() { #expect(MemoryLayout<TaskChange>.size <= 64) }

  private mutating func insertEnded() {
    table.insert(.make(1, key: "k"))
    let lease = table.claim(1)[0].lease
    _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
  }

  @Test(arguments: Request.allCases)
  mutating func `a change of an ended task is stale while a pruning is staged`(
    request: Request
  ) {
    insertEnded()
    let prunings = (1...2).map { _ in
      table.stage(.prune(.succeeded, endedBefore: nil, keepingLatest: 5, now: .distantPast))
    }
    #expect(table.stage([request.change]).map(\.outcome) == [.stale])
    table.rollBack(prunings[1])
    #expect(table.stage([request.change]).map(\.outcome) == [.stale])
    table.commit(prunings[0])
    #expect(table.apply([request.change]) == [.done])
    #expect(table.brokenInvariants() == [])
  }

  @Test(arguments: Request.allCases)
  func `a file with a request for a task and a concurrent pruning can be read`(
    request: Request
  ) async throws {
    let (storage, executor) = (MemoryStorage(), ManualExecutor { 0 })
    let core = JSONFileCore(URL(filePath: "/queue.jsonl"), thread: { executor }) { (nil, storage) }
    try await executor.runToEnd {
      try await core.open()
      _ = try await core.apply([.insert(.make(1, key: "k"), onDuplicate: .keep)], .durable)
      let cancellation = TaskChange.cancel(
        .unclaimed(.numbered(1)),
        at: .seconds(1),
        retains: true
      )
      _ = try await core.apply([cancellation], .durable)
      // Both changes are decided before either is written.
      async let pruning = core.apply(
        [.prune(.cancelled, endedBefore: nil, keepingLatest: 0, now: .distantPast)],
        .durable
      )
      async let answer = core.apply([request.change], .durable)
      #expect(try await pruning == [.done])
      let outcome = try await answer
      #expect(outcome == [.stale] || outcome == [.done])
    }
    let read = try JournalReader.read(storage.bytes).table
    #expect(read.numbers == core.read(\.numbers))
    #expect(read.brokenInvariants() == [])
  }

  @Test mutating func `a task with a staged change does not make the queue claim again at once`() {
    table.insert(.make(1))
    table.insert(.make(2))
    let change = table.stage(.cancel(.unclaimed(.numbered(2)), at: .seconds(0), retains: false))
    let claim = table.claim(ClaimRequest(limit: 1, names: ["Note": 9], now: .seconds(0)))
    #expect(claim.tasks.numbers == [1])
    #expect(claim.nextDate == nil)
    table.rollBack(change)
    #expect(table.claim(9).numbers == [2])
  }

  @Test(arguments: [false, true])
  mutating func `a task that becomes the first of its order key during a change isn't claimed`(
    isRolledBack: Bool
  ) {
    for number in 1...2 { table.insert(.make(number, order: "o")) }
    let pause = table.stage(.pause(.unclaimed(.numbered(2))))
    _ = table.apply([.cancel(.unclaimed(.numbered(1)), at: .seconds(0), retains: false)])
    let early = table.claim(9).numbers
    #expect(early == [])
    if isRolledBack { table.rollBack(pause) } else { table.commit(pause) }
    #expect(table.brokenInvariants() == [])
    let late = table.claim(9).numbers
    #expect(late == (isRolledBack ? [2] : []))
  }

  @Test mutating func `a due task is available once its staged change is rolled back`() {
    table.insert(.make(1, available: 60))
    table.insert(.make(2))
    let change = table.stage(.pause(.unclaimed(.numbered(1))))
    #expect(table.claim(9, at: 100).numbers == [2])
    table.rollBack(change)
    #expect(table.brokenInvariants() == [])
    #expect(table.claim(9, at: 100).numbers == [1])
  }

  @Test mutating func `a clock that goes back a little makes no task available early`() {
    table.insert(.make(1, available: 10))
    #expect(table.claim(9, at: 10).numbers == [1])
    #expect(table.claim(9, at: 9.5).numbers == [])
    table.insert(.make(2, available: 9.8))
    #expect(table.claim(9, at: 9.5).numbers == [])
    #expect(table.claim(9, at: 9.8).numbers == [2])
  }

  @Test
  mutating func `unparked tasks are in the order of parking, also after a compaction`()
    throws
  {
    for number in 1...5 { table.insert(.make(number)) }
    let claimed = table.claim(5)
    let failure = TaskFailure(reason: "can't be read", date: .seconds(1))
    for number in [3, 1, 5, 2, 4] {
      _ = table.apply([.park(claimed[number - 1].lease, failure: failure)])
    }
    let (journal, _) = try Journal.open(MemoryStorage())
    let storage = MemoryStorage()
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try compaction.finish(journal, at: .seconds(2))
    for var table in [table, try JournalReader.read(storage.bytes).table] {
      _ = table.apply([.unpark(name: "Note")])
      #expect(table.claim(9, at: 2).numbers == [3, 1, 5, 2, 4])
    }
  }
}
