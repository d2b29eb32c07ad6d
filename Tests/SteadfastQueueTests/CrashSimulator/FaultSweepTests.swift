import Testing

@testable import SteadfastQueue

/// A single failure of the disk, at any call.
///
/// A plain run of the tests tries a few calls. With `STEADFAST_IMAGES`, it tries every failure of
/// every call.
@Suite struct FaultSweepTests {
  @Test func `no single failure of the disk loses an acknowledged task or invents one`() async {
    let report = await FaultSweep.run(isQuick: CrashSimulation.imageCount == nil)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.calls > 3 * FaultSweep.workloads.count)
  }
}
