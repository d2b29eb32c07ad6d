import Foundation
import Testing

@testable import SteadfastQueue

/// Compares the dates of rules in many time zones with dates that are computed in other ways.
struct ZoneTests {
  /// The dates of a rule after `start` and until `end`, in seconds since 1970.
  private func dates(_ rule: ScheduleRule, after start: Int, through end: Int) -> [Int] {
    var dates: [Int] = []
    var last = start
    while let next = rule.next(after: Date(timeIntervalSince1970: Double(last))) {
      last = Int(next.timeIntervalSince1970)
      guard last <= end else { break }
      dates.append(last)
    }
    return dates
  }

  /// Time zones, each with the first of six days around a change of the zone's offset.
  private static let changes = [
    ("Europe/Berlin", "2027-03-25"), ("Europe/Berlin", "2027-10-28"),
    ("Australia/Lord_Howe", "2027-04-01"), ("Australia/Lord_Howe", "2027-09-30"),
    ("Pacific/Apia", "2011-12-28"), ("America/Sao_Paulo", "2018-11-01"),
    ("Asia/Pyongyang", "2018-05-02"), ("America/Caracas", "2016-04-29"),
    ("Africa/Cairo", "2027-04-28"), ("Pacific/Kwajalein", "2010-01-01"),
  ]

  @Test(arguments: changes)
  func `a rule's dates are the minutes at which a local clock shows or skips the rule's times`(
    identifier: String,
    day: String
  ) throws {
    let zone = try zone(identifier)
    let start = Int(try date("\(day)T00:00:00Z").timeIntervalSince1970)
    let end = start + 6 * 86_400
    func time(_ instant: Int) -> Int {
      instant + zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(instant)))
    }
    for minutes in [[150], [0], [90, 1_439], Array(stride(from: 7, to: 1_440, by: 15))] {
      let hours = Set(minutes.map { $0 / 60 })
      let inHour = Set(minutes.map { $0 % 60 })
      // A cron line can express only some sets of minutes of a day.
      guard minutes.count == hours.count * inHour.count || minutes.count == 1 else { continue }
      let line =
        "\(inHour.sorted().map(String.init).joined(separator: ",")) "
        + "\(hours.sorted().map(String.init).joined(separator: ",")) * * *"
      let wanted = Set(minutes)
      var expected: [Int] = []
      var shown = time(start)
      for instant in stride(from: start + 60, through: end, by: 60) {
        let now = time(instant)
        // The minutes of local time that the clock reaches or skips with this minute.
        let isWanted = stride(from: shown + 60, through: now, by: 60).contains {
          wanted.contains(($0 / 60) % 1_440)
        }
        if isWanted { expected.append(instant) }
        shown = max(shown, now)
      }
      let rule = try ScheduleRule.cron(line, in: zone)
      #expect(dates(rule, after: start, through: end) == expected, "\(line)")
    }
  }

  // MARK: Every zone

  private static let rules: [@Sendable (TimeZone) throws -> ScheduleRule] = [
    { try .daily(at: .time(2, 30), in: $0) },
    { try .weekly(on: [.sunday, .wednesday], at: .time(0, 0), in: $0) },
    { try .cron("30 8 * * 1-5", in: $0) },
    { try .cron("*/30 0-3 1-7 3,4,10,11 sun", in: $0) },
    { try .cron("59 23 28-31 * *", in: $0) },
  ]

  private static let (firstSecond, lastSecond) = (946_684_800, 2_208_988_799)

  private static var folder: String? {
    ProcessInfo.processInfo.environment["STEADFAST_ZONES"]
  }

  /// Writes all dates of the years 2000 to 2039 in every zone, for `Tests/EndToEnd/schedules.py`.
  ///
  /// `STEADFAST_ZONES` names the folder.
  @Test(.enabled(if: folder != nil))
  func `the dates of every zone are written to files`() async throws {
    let folder = URL(filePath: try #require(Self.folder))
    let zones = TimeZone.knownTimeZoneIdentifiers
    try #require(zones.count > 400)
    let all = try await withThrowingTaskGroup(of: (String, [[Int32]]).self) { group in
      for identifier in zones {
        group.addTask { (identifier, try self.allDates(in: zone(identifier))) }
      }
      var groups: [[[Int32]]: [String]] = [:]
      for try await (identifier, dates) in group { groups[dates, default: []].append(identifier) }
      return groups
    }
    var index: [String] = []
    for (number, entry) in all.sorted(by: { $0.value.min() ?? "" < $1.value.min() ?? "" })
      .enumerated()
    {
      let counts = entry.key.map { String($0.count) }
      index.append(
        "\(number) \(counts.joined(separator: ",")) \(entry.value.joined(separator: ","))"
      )
      let numbers = entry.key.flatMap { $0 }.map(\.littleEndian)
      // `Data` copies the bytes while the array is alive.
      let data = unsafe numbers.withUnsafeBytes { unsafe Data($0) }
      try data.write(to: folder.appending(path: "\(number).bin"))
    }
    try Data(index.joined(separator: "\n").utf8).write(to: folder.appending(path: "index"))
  }

  /// The dates of each rule, in seconds since 2000.
  private func allDates(in zone: TimeZone) throws -> [[Int32]] {
    var all = try Self.rules.map { make in
      dates(try make(zone), after: Self.firstSecond - 1, through: Self.lastSecond)
    }
    // Every hour of the three days around each change of the zone's offset.
    let hourly = try ScheduleRule.hourly(minute: 20, in: zone)
    func offset(_ instant: Int) -> Int {
      zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(instant)))
    }
    var hours: [Int] = []
    var before = offset(Self.firstSecond + 86_400)
    for day in stride(from: Self.firstSecond + 2 * 86_400, to: Self.lastSecond - 86_400, by: 86_400)
    {
      let after = offset(day)
      if after != before { hours += dates(hourly, after: day - 2 * 86_400, through: day + 86_400) }
      before = after
    }
    all.append(hours)
    return all.map { dates in dates.map { Int32($0 - Self.firstSecond) } }
  }
}
