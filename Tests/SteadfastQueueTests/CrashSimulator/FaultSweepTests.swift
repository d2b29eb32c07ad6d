import Testing

@testable import SteadfastQueue

/// One failure of the disk, wherever it comes: a few calls in each run of the tests, every call
/// and every failure where `STEADFAST_IMAGES` is set.
@Suite struct FaultSweepTests {
  @Test func `no single failure of the disk loses an acknowledged task or makes one up`() async {
    let report = await FaultSweep.run(isQuick: CrashSimulation.imageCount == nil)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.calls > 3 * FaultSweep.workloads.count)
  }
}
