import Foundation
import Testing

@testable import SteadfastQueue

extension ScheduleRule {
  /// The next dates after a date, as texts.
  fileprivate func dates(after start: String, count: Int) throws -> [String] {
    var dates = [try SteadfastQueueTests.date(start)]
    for _ in 0..<count { dates.append(try #require(dates.last.flatMap(next))) }
    return dates.dropFirst().map { $0.formatted(.iso8601) }
  }
}

struct ScheduleRuleTests {
  @Test func `a time that the clocks skip becomes the first moment after it`() throws {
    let rule = try ScheduleRule.daily(at: .time(2, 30), in: zone("Europe/Berlin"))
    #expect(
      try rule.dates(after: "2027-03-26T12:00:00Z", count: 4) == [
        "2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z",
        "2027-03-30T00:30:00Z",
      ]
    )
  }

  @Test func `a time that occurs twice in a day has one date, the first`() throws {
    let rule = try ScheduleRule.daily(at: .time(2, 30), in: zone("Europe/Berlin"))
    #expect(
      try rule.dates(after: "2027-10-30T12:00:00Z", count: 2) == [
        "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z",
      ]
    )
    // The start is between the two occurrences of the time.
    #expect(
      try rule.dates(after: "2027-10-31T01:15:00Z", count: 1) == ["2027-11-01T01:30:00Z"]
    )
  }

  @Test
  func `a date on a day that a time zone skipped becomes the first moment after the day`() throws {
    // Samoa went from 29 to 31 December 2011.
    let rule = try ScheduleRule.daily(at: .time(12, 0), in: zone("Pacific/Apia"))
    #expect(
      try rule.dates(after: "2011-12-29T00:00:00Z", count: 3) == [
        "2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z",
      ]
    )
  }

  @Test func `an hourly rule has one date in each real hour`() throws {
    let rule = try ScheduleRule.hourly(minute: 30, in: zone("Europe/Berlin"))
    for start in ["2027-03-27T22:10:00Z", "2027-10-30T22:10:00Z"] {
      let first = try #require(rule.next(after: date(start)))
      var last = first
      for count in 1..<8 {
        last = try #require(rule.next(after: last))
        #expect(last == first + Double(count) * 3_600)
      }
    }
  }

  @Test func `hourly dates follow clocks that go back by half an hour`() throws {
    let rule = try ScheduleRule.hourly(minute: 0, in: zone("Australia/Lord_Howe"))
    #expect(
      try rule.dates(after: "2027-04-03T13:30:00Z", count: 3) == [
        "2027-04-03T14:00:00Z", "2027-04-03T15:30:00Z", "2027-04-03T16:30:00Z",
      ]
    )
  }

  @Test func `hourly dates without a time zone are in GMT`() throws {
    #expect(
      try ScheduleRule.hourly(minute: 15).dates(after: "2027-01-01T00:15:00Z", count: 2) == [
        "2027-01-01T01:15:00Z", "2027-01-01T02:15:00Z",
      ]
    )
  }

  @Test func `a weekly rule has a date on each of its days`() throws {
    let rule = try ScheduleRule.weekly(
      on: [.friday, .monday],
      at: .time(6, 0, 30),
      in: zone("America/New_York")
    )
    #expect(
      try rule.dates(after: "2027-03-12T11:00:30Z", count: 3) == [
        "2027-03-15T10:00:30Z", "2027-03-19T10:00:30Z", "2027-03-22T10:00:30Z",
      ]
    )
    #expect(rule.description == "weekly Mon,Fri 06:00:30 (America/New_York)")
  }

  @Test func `an interval counts from the previous date`() throws {
    let rule = try ScheduleRule.every(.seconds(90))
    #expect(
      try rule.dates(after: "2027-01-01T00:00:10Z", count: 2) == [
        "2027-01-01T00:01:40Z", "2027-01-01T00:03:10Z",
      ]
    )
    #expect(rule.timeZoneIdentifier == nil)
  }

  @Test func `the date after a fractional second is the next whole one`() throws {
    let rule = try ScheduleRule.daily(at: .time(0, 0), in: .gmt)
    #expect(
      rule.next(after: try date("2026-12-31T23:59:59Z") + 0.9)
        == (try date("2027-01-01T00:00:00Z"))
    )
    #expect(
      rule.next(after: try date("2027-01-01T00:00:00Z") + 0.1)
        == (try date("2027-01-02T00:00:00Z"))
    )
  }

  @Test func `no date is after the year 9999`() throws {
    let rule = try ScheduleRule.daily(at: .time(0, 0), in: .gmt)
    #expect(rule.next(after: try date("9999-12-31T00:00:00Z")) == nil)
    #expect(rule.next(after: .distantFuture + 1e30) == nil)
    #expect(rule.next(after: Date(timeIntervalSince1970: .nan)) == nil)
  }

  @Test func `a rule can be restored from its string`() throws {
    let berlin = try zone("Europe/Berlin")
    let rules = try [
      ScheduleRule.every(.seconds(900)), .hourly(minute: 59, in: berlin),
      .daily(at: .time(2, 5), in: berlin), .daily(at: .time(23, 59, 59), in: berlin),
      .weekly(on: Set(ScheduleRule.Weekday.allCases), at: .time(0, 0), in: berlin),
      .cron("*/5  8-18 * JAN-mar Mon,wed", in: berlin), .cron("@daily", in: berlin),
    ]
    for rule in rules { #expect(ScheduleRule(text: rule.text, in: rule.zone) == rule) }
    for text in ["", "each 5", "every", "every x", "daily 25:00", "weekly Mom 1:00", "cron *"] {
      #expect(ScheduleRule(text: text, in: berlin) == nil)
    }
  }

  @Test func `an invalid rule is rejected`() throws {
    let rules: [(String, () throws -> ScheduleRule)] = [
      ("interval 0.5 seconds", { try .every(.milliseconds(500)) }),
      ("interval 1.5 seconds", { try .every(.milliseconds(1_500)) }),
      ("minute 60", { try .hourly(minute: 60) }),
      ("24:00", { try .daily(at: .time(24, 0), in: .gmt) }),
      ("02:00:60", { try .daily(at: .time(2, 0, 60), in: .gmt) }),
      ("3601 s", { try .daily(at: .time(2, 0), in: #require(TimeZone(secondsFromGMT: 3_601))) }),
      ("-59 s", { try .cron("* * * * *", in: #require(TimeZone(secondsFromGMT: -59))) }),
      ("3601 s", { try .hourly(minute: 1, in: #require(TimeZone(secondsFromGMT: 3_601))) }),
      ("no day", { try .weekly(on: [], at: .time(2, 0), in: .gmt) }),
    ]
    for (text, make) in rules {
      let error = #expect(throws: TaskQueueError.self) { try make() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(text) == true)
    }
  }
}
