//! Makes a report each night, and shows what happens to nights on which nothing runs.

import Foundation
import SteadfastTesting

struct Report: TaskPayload { var recipient: String }

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  // snippet.handler
  await queue.register(Report.self) { report, context in
    guard let night = context.occurrence else { return }
    print("report of \(night.date) to \(report.recipient)")
    if night.isLate { print("late, for \(night.missedCount + 1) nights") }
  }
  // snippet.end
  guard let berlin = TimeZone(identifier: "Europe/Berlin") else {
    return print("this system has no zones")
  }
  // snippet.schedule
  try await queue.schedule(
    "nightly",
    .daily(at: .time(2, 30), in: berlin),
    Report(recipient: "team")
  )
  // snippet.end
  // snippet.cron
  // 30 8 * * 1-5  /usr/local/bin/report boss
  try await queue.schedule(
    "workdays",
    .cron("30 8 * * 1-5", in: berlin),
    Report(recipient: "boss")
  )
  // snippet.end
  // snippet.dates
  for date in try await queue.occurrences(of: "workdays", count: 3) {
    print("on workdays:", date)
  }
  // snippet.end
  for schedule in try await queue.schedules() { print(schedule) }

  func runs(forDays days: Int) async throws {
    for _ in 0..<(days * 24) {
      await time.advance(by: .seconds(3_600))
      try await queue.runAvailable()
    }
  }
  try await runs(forDays: 2)
  print("nothing runs for four days")
  await time.advance(by: .seconds(4 * 86_400))
  try await runs(forDays: 1)
  try await queue.unschedule("nightly")
}
