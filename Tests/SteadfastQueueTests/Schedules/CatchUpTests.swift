import Foundation
import Testing

@testable import SteadfastQueue

/// Tests an hourly schedule.
///
/// Its first date, at midnight, was either handled or missed.
struct CatchUpTests {
  private let start = Date(timeIntervalSinceReferenceDate: 0)

  private func catchUp(
    _ missed: MissedOccurrences,
    hours: Double,
    wasHandled: Bool = true,
    delay: Duration = .zero
  ) throws -> CatchUp {
    let policy = CatchUp.Policy(rule: try .hourly(minute: 0), missed: missed, delay: delay)
    return CatchUp(after: start, wasHandled: wasHandled, now: start + hours * 3_600, policy)
  }

  private func hour(_ number: Int) -> Date { start + Double(number) * 3_600 }

  @Test(arguments: [MissedOccurrences.once(), .skip, .each(atMost: 5)])
  func `no date counts as missed before the schedule's next date`(
    missed: MissedOccurrences
  ) throws {
    #expect(try catchUp(missed, hours: 0.9) == CatchUp(next: hour(1)))
    // The same with a clock that is three hours slow.
    #expect(try catchUp(missed, hours: -3) == CatchUp(next: hour(1)))
  }

  @Test func `one occurrence replaces all missed ones`() throws {
    #expect(try catchUp(.once(), hours: 1.5) == CatchUp(next: hour(1)))
    #expect(try catchUp(.once(), hours: 4) == CatchUp(next: hour(4), missedCount: 3))
    #expect(
      try catchUp(.once(), hours: 4.9, wasHandled: false) == CatchUp(next: hour(4), missedCount: 4)
    )
    let limited = MissedOccurrences.once(within: .seconds(600))
    #expect(try catchUp(limited, hours: 4.1) == CatchUp(next: hour(4), missedCount: 3))
    #expect(try catchUp(limited, hours: 4.5) == CatchUp(next: hour(5), skippedCount: 4))
    #expect(
      try catchUp(limited, hours: 0.5, wasHandled: false)
        == CatchUp(next: hour(1), skippedCount: 1)
    )
  }

  @Test func `a date that is more than a minute ago is skipped`() throws {
    #expect(try catchUp(.skip, hours: 3.5) == CatchUp(next: hour(4), skippedCount: 3))
    #expect(try catchUp(.skip, hours: 3 + 59.0 / 3_600) == CatchUp(next: hour(3), missedCount: 2))
  }

  @Test func `each missed date has an occurrence, up to the limit`() throws {
    #expect(try catchUp(.each(atMost: 3), hours: 3.5) == CatchUp(next: hour(1)))
    #expect(
      try catchUp(.each(atMost: 3), hours: 7.5) == CatchUp(next: hour(5), skippedCount: 4)
    )
    #expect(
      try catchUp(.each(atMost: 3), hours: 3.5, wasHandled: false)
        == CatchUp(next: hour(1), skippedCount: 1)
    )
  }

  @Test func `the spread delays each date`() throws {
    #expect(
      try catchUp(.once(), hours: 2.4, delay: .seconds(1_800)) == CatchUp(next: hour(1))
    )
    #expect(
      try catchUp(.once(), hours: 2.6, delay: .seconds(1_800))
        == CatchUp(next: hour(2), missedCount: 1)
    )
  }

  @Test(arguments: [1, 7])
  func `catching up with years of missed minutes needs few steps`(maxCount: Int) throws {
    let years = 10 * 365 * 86_400.0
    for rule in try [ScheduleRule.every(.seconds(7)), .cron("* * * * *", in: .gmt)] {
      let missed: MissedOccurrences = maxCount == 1 ? .once() : .each(atMost: maxCount)
      let policy = CatchUp.Policy(rule: rule, missed: missed, delay: .zero)
      let catchUp = CatchUp(after: start, wasHandled: true, now: start + years, policy)
      var next = try #require(catchUp.next)
      let interval = rule.timeZoneIdentifier == nil ? 7.0 : 60
      // The distance between the dates is still a multiple of the interval.
      #expect(next.timeIntervalSince(start).truncatingRemainder(dividingBy: interval) == 0)
      for _ in 1..<maxCount { next = try #require(rule.next(after: next)) }
      #expect(next <= start + years && next + interval > start + years)
      #expect(catchUp.missedCount + catchUp.skippedCount >= CatchUp.maxCountedDates - maxCount)
      #expect(catchUp.missedCount + catchUp.skippedCount < 2 * CatchUp.maxCountedDates)
    }
  }

  @Test func `an occurrence may start until a later one replaces it`() throws {
    func mayBegin(_ missed: MissedOccurrences, hours: Double) throws -> Bool {
      let policy = CatchUp.Policy(rule: try .hourly(minute: 0), missed: missed, delay: .zero)
      return CatchUp.mayBegin(start, now: start + hours * 3_600, policy)
    }
    #expect(try mayBegin(.once(), hours: 0.99) && !mayBegin(.once(), hours: 1))
    #expect(try mayBegin(.once(within: .seconds(60)), hours: 0.01))
    #expect(try !mayBegin(.once(within: .seconds(60)), hours: 0.5))
    #expect(try mayBegin(.each(atMost: 2), hours: 1.5) && !mayBegin(.each(atMost: 2), hours: 2))
    #expect(try mayBegin(.once(), hours: -1))
  }
}
