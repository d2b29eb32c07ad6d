import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite struct ContinuousClockTests {
  @Test func `the system clock returns the system's date`() {
    let before = Date()
    let date = ContinuousClock().date
    #expect(before <= date && date <= Date())
  }
}
