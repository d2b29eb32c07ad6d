import Foundation
import Testing

@testable import SteadfastQueue

struct CronLineTests {
  private func dates(_ line: String, after start: String, count: Int = 3) throws -> [String] {
    let rule = try ScheduleRule.cron(line, in: .gmt)
    var dates = [try date(start)]
    for _ in 0..<count { dates.append(try #require(dates.last.flatMap(rule.next))) }
    return dates.dropFirst().map { String($0.formatted(.iso8601).dropLast(4)) }
  }

  @Test(arguments: [
    ("30 8 * * 1-5", ["2027-01-01T08:30", "2027-01-04T08:30", "2027-01-05T08:30"]),
    ("*/20 1,3 * * *", ["2027-01-01T01:00", "2027-01-01T01:20", "2027-01-01T01:40"]),
    ("10-50/20 * * * *", ["2027-01-01T00:10", "2027-01-01T00:30", "2027-01-01T00:50"]),
    ("0 0 31 * *", ["2027-01-31T00:00", "2027-03-31T00:00", "2027-05-31T00:00"]),
    ("0 0 29 feb *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
    // If both the day of the month and the weekday are restricted, a date needs to match only one.
    ("0 8 1 * mon", ["2027-01-01T08:00", "2027-01-04T08:00", "2027-01-11T08:00"]),
    ("0 8 */10 * mon", ["2027-01-11T08:00", "2027-02-01T08:00", "2027-03-01T08:00"]),
    ("0 8 1 * *", ["2027-01-01T08:00", "2027-02-01T08:00", "2027-03-01T08:00"]),
    ("5 4 * * 7", ["2027-01-03T04:05", "2027-01-10T04:05", "2027-01-17T04:05"]),
    ("5 4 * * 6-7", ["2027-01-02T04:05", "2027-01-03T04:05", "2027-01-09T04:05"]),
    ("\n5 4 * * 7\r\n", ["2027-01-03T04:05", "2027-01-10T04:05", "2027-01-17T04:05"]),
    ("@monthly\n", ["2027-02-01T00:00", "2027-03-01T00:00", "2027-04-01T00:00"]),
    ("@monthly", ["2027-02-01T00:00", "2027-03-01T00:00", "2027-04-01T00:00"]),
    ("@weekly", ["2027-01-03T00:00", "2027-01-10T00:00", "2027-01-17T00:00"]),
    ("@hourly", ["2027-01-01T01:00", "2027-01-01T02:00", "2027-01-01T03:00"]),
    ("0 0 29 2 */6", ["2032-02-29T00:00", "2048-02-29T00:00", "2060-02-29T00:00"]),
  ])
  func `a cron line has the expected dates`(line: String, expected: [String]) throws {
    #expect(try dates(line, after: "2027-01-01T00:00:00Z") == expected)
  }

  @Test func `several times that the clocks skip at once become one date`() throws {
    let rule = try ScheduleRule.cron("*/10 2-3 * * *", in: zone("Europe/Berlin"))
    let first = try #require(rule.next(after: date("2027-03-28T00:59:00Z")))
    #expect(first == (try date("2027-03-28T01:00:00Z")))
    #expect(rule.next(after: first) == (try date("2027-03-28T01:10:00Z")))
  }

  @Test(arguments: [
    ("", "0 fields"), ("* * * *", "4 fields"), ("* * * * * root", "6 fields"),
    ("60 * * * *", "'60' is not a valid minute"), ("* 24 * * *", "'24' is not a valid hour"),
    ("* * 0 * *", "'0' is not a valid day of the month"),
    ("* * * 13 *", "'13' is not a valid month"),
    ("* * * * 8", "'8' is not a valid day of the week"), ("* * * foo *", "such as 'feb'"),
    ("-5 * * * *", "'' is not a valid minute"), ("+5 * * * *", "'+5' is not a valid minute"),
    ("1,,2 * * * *", "'' is not a valid minute"), ("5-1 * * * *", "ends before it begins"),
    ("1-2-3 * * * *", "too many"), ("*/2/3 * * * *", "too many"), ("*/0 * * * *", "at least 1"),
    ("*/x * * * *", "at least 1"), ("5/10 * * * *", "'5-59/2'"), ("@never", "1 fields"),
    ("0 0 30 2 *", "none of its months"), ("0 0 31 4,6,9,11 *", "none of its months"),
    ("99999999999999999999 * * * *", "is not a valid minute"),
  ])
  func `an invalid line is rejected, and the error has the reason`(line: String, text: String) {
    let error = #expect(throws: TaskQueueError.self) { try ScheduleRule.cron(line, in: .gmt) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains(text) == true, "\(error?.message ?? "")")
    #expect(error?.message.contains("'\(line)'") == true)
  }
}
