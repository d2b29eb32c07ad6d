import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Damages real files at random, without correcting checksums.
///
/// The correct result for each file is known exactly. The reader either refuses the file at the
/// first changed line, or recovers all whole batches before that line. It refuses the file if a
/// later line proves that the changed line or its batch was stored, or if lines are out of order.
///
/// For a long run: `STEADFAST_RUNS=60000 swift test -c release -Xswiftc -enable-testing
/// --scratch-path .build/testing --filter HostileFiles`.
@Suite struct DamagedHostileFilesTests {
  @Test
  func `a damaged file is refused with the line and byte of the damage, or recovered exactly`()
    async throws
  {
    let runs = Soak.runs(short: 100)
    let seeds = Soak.seed.map { $0...$0 } ?? 1...UInt64(max(1, runs / 100))
    var outcomes: [String: Int] = [:]
    for seed in seeds {
      let file = try await FileMaker.file(seed: seed)
      var damage = FileDamage(seed: seed)
      for number in 0..<100 {
        let bytes = damage.damaged(file)
        let expected = ExpectedReading(of: bytes, from: file)
        let context: Comment = "STEADFAST_SEED=\(seed), damage \(number)"
        switch (Result { try JournalReader.read(bytes) }, expected) {
        case (.success(let contents), .recovered(let lineCount)):
          #expect(contents.nextSequence == UInt64(lineCount), context)
          #expect(try contents.table.contentLines() == file.tasks(after: lineCount), context)
          outcomes[lineCount == file.lines.count ? "whole" : "recovered", default: 0] += 1
        case (.failure(let error as JournalProblem), .refused(let line, let byte)):
          guard case .damaged(line, byte, _) = error else { fallthrough }
          outcomes["refused", default: 0] += 1
        case (.failure(let error as JournalProblem), .notAJournal):
          #expect(error == .notAJournal, context)
          outcomes["not a journal", default: 0] += 1
        case (let found, _):
          Issue.record("\(context): \(expected), but \(found)")
        }
      }
    }
    // The test proves little unless each outcome occurs.
    #expect(Set(outcomes.keys).isSuperset(of: ["recovered", "refused", "not a journal"]))
  }

  @Test func `a file contains exactly the tasks of the store that wrote it`() async throws {
    for seed in 1...UInt64(max(2, Soak.runs(short: 0) / 400)) {
      let file = try await FileMaker.file(seed: seed)
      let storage = MemoryStorage(file.bytes)
      let table = try Journal.open(storage).table
      #expect(try table.contentLines() == file.tasks(after: file.lines.count))
      #expect(table.brokenInvariants() == [])
      try ExportedFile.write(file.bytes, named: "file-\(seed)")
    }
  }

  @Test func `a sealed file with any damage before its seal is refused`()
    async throws
  {
    var sealed = 0
    for seed in 1...UInt64(max(6, Soak.runs(short: 0) / 400)) {
      let file = try await FileMaker.file(seed: seed)
      guard let seal = file.seal else { continue }
      sealed += 1
      var damage = FileDamage(seed: seed)
      for _ in 0..<20 {
        var bytes = Array(file.bytes[..<seal.range.lowerBound])
        bytes[damage.pick(bytes.count)] ^= 1 << UInt8(damage.pick(8))
        #expect(throws: JournalProblem.self) {
          try JournalReader.read(bytes + file.bytes[seal.range.lowerBound...])
        }
      }
    }
    #expect(sealed > 0)
  }
}
