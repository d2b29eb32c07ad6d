import Foundation
import Testing

@testable import SteadfastQueue

/// Whether the crash simulator sees what it should: in release, where `STEADFAST_IMAGES` is set.
@Suite(.enabled(if: CrashSimulation.imageCount != nil))
struct PlantedBugTests {
  @Test func `the crash simulator finds every planted bug`() {
    var missed: [PlantedBug] = []
    for bug in PlantedBug.allCases {
      let finding = Self.find(bug)
      print("planted: \(bug.rawValue)\n  \(finding ?? "NOT FOUND")")
      if finding == nil { missed.append(bug) }
    }
    #expect(missed.isEmpty)
  }

  /// The first finding, in the order of the seeds.
  private static func find(_ bug: PlantedBug) -> String? {
    for seed in 0..<UInt64(12 * Workload.all.count) {
      let workload = Workload.all[Int(seed % UInt64(Workload.all.count))]
      let wrap: @Sendable (any JournalStorage) -> any JournalStorage = { BuggyStorage($0, bug) }
      let history = WorkloadRun(workload, seed: seed, wrap: wrap).history()
      var check = CrashCheck(seed: seed)
      check.imagesPerMoment = 20
      check.wrap = wrap
      check.check(history)
      if let finding = check.figures.findings.first {
        return "seed \(seed), \(workload), \(finding)"
      }
    }
    return nil
  }
}
