import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// The store survives every power cut.
///
/// A plain run of the tests takes a quick look. For a long run, in release, set the number of
/// distinct images to recover:
///
///     STEADFAST_IMAGES=300000 swift test -c release -Xswiftc -enable-testing \
///       --scratch-path .build/testing --filter CrashSimulator
///
/// `STEADFAST_SEED=1000000` starts with another history, so that a long run can be split.
@Suite struct CrashSimulatorTests {
  @Test func `no power cut loses an acknowledged task or invents one`() async {
    let report = await CrashSimulation.run(images: CrashSimulation.imageCount)
    print(report)
    #expect(report.findings.isEmpty)
    #expect(report.imageCount >= CrashSimulation.imageCount ?? 500)
  }
}
