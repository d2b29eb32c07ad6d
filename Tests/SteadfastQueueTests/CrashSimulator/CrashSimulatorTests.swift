import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Simulates power cuts, and checks that the store keeps its promises.
///
/// A normal run checks only a few power cuts. For a long run, use a release build, and set the
/// number of distinct disk images to recover:
///
///     STEADFAST_IMAGES=300000 swift test -c release -Xswiftc -enable-testing \
///       --scratch-path .build/testing --filter CrashSimulator
///
/// `STEADFAST_SEED=1000000` starts with another random history, so that a long run can be split.
@Suite struct CrashSimulatorTests {
  @Test func `no power cut loses an acknowledged task or invents one`() async {
    let report = await CrashSimulation.run(images: CrashSimulation.imageCount)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.imageCount >= CrashSimulation.imageCount ?? 500)
  }
}
