import Foundation
import Testing

@testable import SteadfastQueue

struct OccurrenceIDTests {
  @Test func `the ID of an occurrence contains its schedule and date`() throws {
    for name in ["nightly", "", "ä", String(repeating: "x", count: 255)] {
      for text in ["1970-01-01T00:00:00Z", "2027-03-28T01:00:00Z", "9999-12-31T23:59:59Z"] {
        let day = try date(text)
        let id = TaskID(occurrenceOf: ScheduleKey(name), at: day, made: 1_800_000_000_000)
        #expect(id.isOccurrence)
        #expect(id.scheduleKey == ScheduleKey(name))
        #expect(id.occurrenceDate == day)
        #expect(TaskID(id.description) == id)
        #expect(id.high >> 16 == 1_800_000_000_000)
      }
    }
  }

  @Test func `the ID of a task without a schedule is not recognised as an occurrence's ID`() {
    var generator = TaskIDGenerator(.seeded(1))
    for second in 0..<1_000 {
      let id = generator.next(at: Date(timeIntervalSince1970: Double(second)))
      #expect(!id.isOccurrence && id.occurrenceDate == nil)
    }
  }

  @Test func `the keys of 10,000 names differ, and are read from the names of their values`() {
    let keys = (0..<10_000).map { ScheduleKey("schedule \($0)") }
    #expect(Set(keys).count == 10_000)
    #expect(keys.allSatisfy { ScheduleKey(valueName: $0.valueName) == $0 })
    // The name of the value must never change, because existing stores contain it.
    #expect(ScheduleKey("nightly").valueName == "steadfast.schedule.8dd353801")
  }

  @Test(
    arguments: [
      "steadfast.schedule.", "steadfast.schedule.8dd35380", "steadfast.schedule.08dd353801",
      "steadfast.schedule.8DD353801", "steadfast.schedule.+dd353801",
      "steadfast.schedule.8dd35380g", "steadfast.schedules.0dd353801",
    ]
  )
  func `another name is not that of a schedule`(name: String) {
    #expect(ScheduleKey(valueName: name) == nil)
  }
}
