import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct DateStorableTests {
  private static let dates = [
    -1e10, -1, 0, 0.1, 100, 978_307_200, 978_307_200.123, 1_795_250_532.492_600_2, 4e9, 2.5e11,
  ].flatMap {
    [Date(timeIntervalSince1970: $0), Date(timeIntervalSinceReferenceDate: $0 / 3)]
  }

  @Test(arguments: dates)
  func `a storable date is the same after each write and read`(date: Date) {
    let once = date.storable
    #expect(Date(timeIntervalSince1970: once.timeIntervalSince1970) == once)
    #expect(
      abs(once.timeIntervalSince(date)) <= 1e-6 * max(1, abs(date.timeIntervalSince1970) / 1e9)
    )
    let text = once.timeIntervalSince1970.description
    #expect(Double(text).map(Date.init(timeIntervalSince1970:)) == once)
  }

  @Test(arguments: dates)
  func `the next storable date is later than the date, also once both dates are stored`(
    date: Date
  ) {
    #expect(date.nextStorable > date)
    #expect(date.nextStorable.storable > date.storable)
    #expect(
      date.nextStorable.timeIntervalSince(date) < 1e-3
        * max(1, abs(date.timeIntervalSince1970) / 1e9)
    )
  }

  @Test(arguments: [
    (-Double.infinity, -62_135_769_600), (-62_135_769_601, -62_135_769_600),
    (253_402_300_799, 253_402_300_799), (253_402_300_799.001, 253_402_300_799),
    (1e300, 253_402_300_799), (.infinity, 253_402_300_799),
  ])
  func `a date that some store can't represent becomes the nearest storable date`(
    seconds: Double,
    nearest: Double
  ) {
    let date = Date(timeIntervalSince1970: seconds)
    #expect(date.storable == Date(timeIntervalSince1970: nearest))
    #expect(date.storable.isStorable)
    #expect(date.isStorable == (seconds == nearest))
  }
}
