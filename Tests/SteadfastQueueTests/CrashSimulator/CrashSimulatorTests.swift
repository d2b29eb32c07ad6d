import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// The store against every power cut.
///
/// A quick look in each run of the tests; in release, with the number of distinct images to recover:
///
///     STEADFAST_IMAGES=300000 swift test -c release -Xswiftc -enable-testing \
///       --scratch-path .build/testing --filter CrashSimulator
@Suite struct CrashSimulatorTests {
  @Test func `no power cut loses an acknowledged task or makes one up`() async {
    let report = await CrashSimulation.run(images: CrashSimulation.imageCount)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.imageCount >= CrashSimulation.imageCount ?? 500)
  }
}
