import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Changes real files at random, and corrects their checksums and usually their line numbers.
///
/// The library either refuses a file, with an error that names the file and without changing it, or
/// reads a consistent table, whose tasks can be performed, written, compacted and read again.
@Suite struct ForgedHostileFilesTests {
  @Test
  func `a forged file is refused with the position of the error, or works like any other file`()
    async throws
  {
    let runs = Soak.runs(short: 50)
    let seeds = Soak.seed.map { $0...$0 } ?? 1...UInt64(max(1, runs / 50))
    var served = 0
    var refused = 0
    for seed in seeds {
      let file = try await FileMaker.file(seed: seed)
      let other = try await FileMaker.file(seed: seed ^ 1 << 40, rounds: 8)
      var forgery = Forgery(seed: seed)
      for number in 0..<50 {
        let bytes = forgery.forged(file, other)
        let context: Comment = "STEADFAST_SEED=\(seed), forgery \(number)"
        let storage = MemoryStorage(bytes)
        do {
          _ = try JournalReader.read(bytes)
        } catch {
          refused += 1
          expectPlace(of: error, in: bytes, context)
          #expect(throws: (any Error).self, context) { try Journal.open(storage) }
          #expect(storage.bytes == bytes, context)
          continue
        }
        served += 1
        try serve(storage, compacts: number % 5 == 0, context)
      }
    }
    #expect(served > 0 && refused > 0)
  }

  private func expectPlace(of problem: JournalProblem, in bytes: [UInt8], _ context: Comment) {
    switch problem {
    case .damaged(let line, let byte, let reason):
      #expect(bytes.isEmpty || bytes.indices.contains(byte), context)
      #expect(line == 1 + bytes[..<byte].count { $0 == 0x0A }, context)
      #expect(!reason.isEmpty, context)
    case .unknownKind(_, let line):
      #expect(line > 0 && line <= bytes.count { $0 == 0x0A }, context)
    case .notAJournal, .newerVersion:
      break
    case .unreadable(let error):
      Issue.record(error, context)
    }
  }

  /// Opens the file, writes, closes and opens the file again.
  private func serve(_ storage: MemoryStorage, compacts: Bool, _ context: Comment) throws {
    var (journal, table) = try Journal.open(storage)
    #expect(table.brokenInvariants() == [], context)
    if compacts, !table.hasExtremes {
      journal = try compactedJournal(journal, table, storage)
    }
    let record = TaskRecord.make(.max)
    guard table.record(of: record.id) == nil else { return }
    try journal.append([[JournalBody(.change(.insert(record, onDuplicate: .keep)))]])
    try journal.close()
    table.insert(record)
    let found = try Journal.open(storage).table
    // Positions may differ: a compacted file no longer contains the positions of removed tasks.
    #expect(try found.contentLinesWithRanks() == table.contentLinesWithRanks(), context)
    #expect(found.brokenInvariants() == [], context)
  }

  private func compactedJournal(
    _ journal: Journal,
    _ table: TaskTable,
    _ storage: MemoryStorage
  ) throws -> Journal {
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(minimumSize: 0, stepSize: 500, flushSize: 1000)
    )
    return try compaction.finish(journal, at: .seconds(0))
  }
}
