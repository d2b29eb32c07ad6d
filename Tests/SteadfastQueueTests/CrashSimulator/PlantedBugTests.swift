import Foundation
import Testing

@testable import SteadfastQueue

/// Tests that the crash simulator finds bugs, in a release build with `STEADFAST_IMAGES`.
@Suite(.enabled(if: CrashSimulation.imageCount != nil))
struct PlantedBugTests {
  /// The number of seeds to try for each workload.
  private static let rounds = 40

  @Test func `the crash simulator finds every planted bug`() async {
    let findings = await withTaskGroup(of: (PlantedBug, String?).self) { group in
      for bug in PlantedBug.allCases { group.addTask { (bug, Self.firstFinding(of: bug)) } }
      return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
    }
    print("| bug | rule | finding |\n| --- | --- | --- |")
    for bug in PlantedBug.allCases {
      print("| \(bug.rawValue) | \(bug.rule.rawValue) | \(findings[bug] ?? "NOT FOUND") |")
    }
    #expect(PlantedBug.allCases.filter { findings[$0] == nil } == [])
  }

  @Test func `each rule of the file has a planted bug that breaks the rule`() {
    #expect(Set(PlantedBug.allCases.map(\.rule)) == Set(PlantedBug.Rule.allCases))
  }

  /// Returns the first problem that the crash simulator finds in a store with the bug.
  ///
  /// Seeds whose workload is likely to trigger the bug come first.
  private static func firstFinding(of bug: PlantedBug) -> String? {
    let seeds = 0..<UInt64(rounds * Workload.all.count)
    let likely = seeds.filter { bug.isLikely(in: CrashSimulation.workload(ofSeed: $0)) }
    for seed in likely + seeds.filter({ !likely.contains($0) }) {
      let workload = CrashSimulation.workload(ofSeed: seed)
      let wrap: @Sendable (any JournalStorage) -> any JournalStorage = { BuggyStorage($0, bug) }
      let history = WorkloadRun(workload, seed: seed, wrap: wrap).history()
      var check = CrashCheck(seed: seed)
      check.imagesPerMoment = 6
      check.wrap = wrap
      check.check(history)
      if let finding = check.figures.findings.first {
        return "seed \(seed), \(workload), \(finding)"
      }
    }
    return nil
  }
}

extension PlantedBug {
  fileprivate func isLikely(in workload: Workload) -> Bool {
    switch rule {
    case .wholeWrites, .failedWrite, .failedFlush: workload.faultShare > 20
    case .compaction, .making, .sweeping: workload.compactionSize < .max
    case .seal, .rewriting, .attempts: workload.restartShare > 0
    case .durableLines, .batches, .tornOrDamaged: workload.relaxedShare > 0
    case .groupCommit, .checksum, .sequence: true
    }
  }
}
