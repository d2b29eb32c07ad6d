import Foundation
import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests changes that are staged while earlier changes aren't committed yet, as in a busy file.
@Suite struct StagedHistoryTests {
  /// A table, and the lines of its committed changes.
  private struct Run {
    private var caller: SimulatedCaller
    private var random: SplitMix64
    private var table = TaskTable()
    private var written: [JournalEntry] = []
    private var pending: [(changes: [StagedChange], entries: [JournalEntry])] = []

    init(seed: UInt64) {
      caller = SimulatedCaller(.stagedHistory, seed: seed)
      random = SplitMix64(seed: seed &+ 1)
    }

    mutating func perform(calls: Int) throws {
      for _ in 0..<calls {
        for call in caller.nextCalls() { try make(call) }
        switch random.next() % 8 {
        case 0: rollBack()
        case 1...4: commit(Int(random.next() % 3))
        default: break
        }
      }
      commit(pending.count)
    }

    private mutating func make(_ call: SimulatedCaller.Call) throws {
      switch call {
      case .claim(let request):
        // A claim is written before the pending changes.
        let claim = table.claim(request)
        caller.leases += claim.tasks.map(\.lease)
        written += claim.tasks.map { .begin($0.lease.id) }
      case .apply(let batch, _):
        let staged = table.stage(batch)
        var entries: [JournalEntry] = []
        for (change, staged) in zip(batch, staged) where staged.isKept {
          let plain = try JournalBody(.change(change))
          entries.append((table.decision(on: staged).map(plain.adding) ?? plain).entry)
        }
        pending.append((staged, entries))
      }
    }

    private mutating func commit(_ count: Int) {
      for (changes, entries) in pending.prefix(count) {
        for change in changes { table.commit(change) }
        written += entries
      }
      pending.removeFirst(min(count, pending.count))
    }

    /// Rolls back all pending changes, as if the write of the first call had failed.
    private mutating func rollBack() {
      for (changes, _) in pending.reversed() {
        for change in changes.reversed() { table.rollBack(change) }
      }
      pending = []
    }

    /// Compares the table with a table that is read from the lines.
    func check() throws {
      var found = TaskTable()
      for (number, entry) in written.enumerated() {
        let isApplied = found.replay(entry)
        try #require(isApplied, "line \(number): \(entry)")
      }
      var live = table
      live.interruptLeased()
      found.interruptLeased()
      try #require(live.brokenInvariants() == [])
      try #require(found.brokenInvariants() == [])
      let expected = Set(try live.contentLinesWithRanks())
      let read = Set(try found.contentLinesWithRanks())
      let (lost, made) = (expected.subtracting(read).sorted(), read.subtracting(expected).sorted())
      try #require(lost.isEmpty && made.isEmpty, "live: \(lost), read: \(made)")
    }
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 120)))
  func `reading the lines restores the committed state`(seed: UInt64) throws {
    var run = Run(seed: seed)
    try run.perform(calls: 60)
    try run.check()
  }
}

extension Workload {
  fileprivate static let stagedHistory = Workload(
    name: "staged",
    rounds: 60,
    concurrentCalls: 3,
    batchSize: 3,
    workShare: 60,
    keyedShare: 50
  )
}
