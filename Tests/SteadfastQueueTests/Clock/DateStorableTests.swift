import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct DateStorableTests {
  private static let dates = [
    -1e10, -1, 0, 0.1, 100, 978_307_200, 978_307_200.123, 1_795_250_532.492_600_2, 4e9, 1e13,
  ].flatMap {
    [Date(timeIntervalSince1970: $0), Date(timeIntervalSinceReferenceDate: $0 / 3)]
  }

  @Test(arguments: dates)
  func `a date that was stored reads the same ever after`(date: Date) {
    let once = date.storable
    #expect(Date(timeIntervalSince1970: once.timeIntervalSince1970) == once)
    #expect(
      abs(once.timeIntervalSince(date)) <= 1e-6 * max(1, abs(date.timeIntervalSince1970) / 1e9)
    )
    let text = once.timeIntervalSince1970.description
    #expect(Double(text).map(Date.init(timeIntervalSince1970:)) == once)
  }

  @Test(arguments: dates)
  func `the next date is later, and stays so when stored`(date: Date) {
    #expect(date.nextStorable > date)
    #expect(date.nextStorable.storable > date.storable)
    #expect(
      date.nextStorable.timeIntervalSince(date) < 1e-3
        * max(1, abs(date.timeIntervalSince1970) / 1e9)
    )
  }
}
