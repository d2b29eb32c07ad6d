import SteadfastTesting
import TestSupport
import Testing

/// Tests of several processes on one store, whose connections and processes fail at random.
///
/// `STEADFAST_RUNS=1000 swift test --filter HistorySimulationTests` runs longer.
/// `STEADFAST_SEED=17` repeats only the run with this seed.
@Suite struct HistorySimulationTests {
  @Test func `a correct store keeps every promise, even if rare events occur`() async throws {
    let seeds = Soak.seed.map { $0...$0 } ?? 0...UInt64(max(0, Soak.runs(short: 8) - 1))
    var (lost, notDone, close, tasks) = (0, 0, 0, 0)
    for seed in seeds {
      let report = try await HistorySimulation.check(seed: seed)
      guard report.passes else {
        Issue.record("with the seed \(seed): \(report)")
        return
      }
      #expect(report.skipped.allSatisfy { $0.promise == .limitsHold })
      lost += report.rarePaths.lostLeases
      notDone += report.rarePaths.unansweredAndNotDone
      close += report.rarePaths.closeLastMembers
      tasks += report.taskCount
    }
    // The runs prove little if one of these paths is rare among them.
    let counts = "of \(tasks) tasks: \(lost) lost, \(notDone) not done, \(close) close"
    for count in [lost, notDone, close] { #expect(count >= seeds.count, "\(counts)") }
  }

  @Test(arguments: HistoryMutant.all)
  func `the check reports the promise that a planted fault breaks`(
    mutant: HistoryMutant
  ) async throws {
    var reports: [History.Report] = []
    // Only few seeds reveal the rarest faults.
    for seed in mutant.firstSeed..<mutant.firstSeed + 100 {
      let report = try await HistorySimulation.check(seed: seed, fault: mutant.fault)
      if report.broken.contains(mutant.promise) { return }
      reports.append(report)
    }
    Issue.record("not found: \(reports.map(\.description).joined(separator: "\n"))")
  }
}
