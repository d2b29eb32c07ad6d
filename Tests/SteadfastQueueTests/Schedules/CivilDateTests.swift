import Foundation
import Testing

@testable import SteadfastQueue

struct CivilDateTests {
  @Test(arguments: [
    (0, 1970, 1, 1), (-1, 1969, 12, 31), (59, 1970, 3, 1), (11_016, 2000, 2, 29),
    (11_017, 2000, 3, 1), (-25_509, 1900, 2, 28), (-25_508, 1900, 3, 1), (-719_162, 1, 1, 1),
    (2_932_896, 9999, 12, 31),
  ])
  func `dates and day numbers correspond`(number: Int, year: Int, month: Int, day: Int) {
    let date = CivilDate(year: year, month: month, day: day)
    #expect(date.dayNumber == number)
    #expect(CivilDate(dayNumber: number) == date)
  }

  @Test func `the days of 400 years are consecutive, as in a calendar`() throws {
    var calendar = Calendar(identifier: .gregorian)
    calendar.timeZone = .gmt
    var last = CivilDate(dayNumber: -1_000)
    for number in -999..<146_097 {
      let date = CivilDate(dayNumber: number)
      let isNext =
        date.day == last.day + 1 && date.month == last.month
        || date == last.firstOfNextMonth
      try #require(isNext && date.dayNumber == number)
      last = date
      guard number.isMultiple(of: 37) else { continue }
      let parts = calendar.dateComponents(
        [.year, .month, .day, .weekday],
        from: Date(timeIntervalSince1970: Double(number) * 86_400)
      )
      try #require([parts.year, parts.month, parts.day] == [date.year, date.month, date.day])
      try #require(parts.weekday == CivilDate.weekday(ofDayNumber: number) + 1)
    }
  }
}
