import Testing

@testable import SteadfastQueue

/// Makes a single call to the disk fail.
///
/// A normal run tries a few of the calls. With `STEADFAST_IMAGES`, the test tries every failure of
/// every call.
@Suite struct FaultSweepTests {
  @Test func `no single failure of the disk loses an acknowledged task or invents one`() async {
    let report = await FaultSweep.run(isQuick: CrashSimulation.imageCount == nil)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.calls > 3 * FaultSweep.workloads.count)
  }
}
