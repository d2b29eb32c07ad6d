import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct ClockStepDetectorTests {
  private static let day = 86_400.0

  @Test(arguments: [
    ([0], [true]),
    ([0, 0, day], [true, false, false]),
    ([day, 0, 0], [true, true, false]),
    ([day, day - 0.5, day - 0.9], [true, false, false]),
    ([day, day - 0.7, day - 1.4], [true, false, true]),
    ([day, 0, day, 0], [true, true, false, true]),
  ])
  func `the detector reports the first date, and a clock that has moved back`(
    dates: [Double],
    expected: [Bool]
  ) {
    var watch = ClockStepDetector()
    #expect(dates.map { watch.detectStepBack(to: .seconds($0)) } == expected)
  }
}
