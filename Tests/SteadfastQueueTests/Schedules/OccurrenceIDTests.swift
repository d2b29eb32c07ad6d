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

  @Test func `the keys of 10,000 names are evenly distributed over the parts of the index`() {
    let keys = (0..<10_000).map { ScheduleKey("schedule \($0)") }
    #expect(Set(keys).count == 10_000)
    let parts = Dictionary(grouping: keys, by: \.part)
    #expect(parts.count == 64)
    #expect(parts.values.allSatisfy { (90...230).contains($0.count) })
    // The name of the value must never change, because existing stores contain it.
    #expect(ScheduleKey("nightly").valueName == "steadfast.schedule.\(Self.nightly)")
  }

  private static let nightly = "8dd353801"

  @Test func `an index is the same after it was written and read`() throws {
    let keys = ["a", "b", "c"].map(ScheduleKey.init)
    let part = ScheduleIndex.encodedPart(listing: keys)
    #expect(try ScheduleIndex.keys(listedIn: part, number: 0) == keys.sorted { $0.bits < $1.bits })
    #expect(ScheduleIndex.encodedPart(listing: []) == nil)
    #expect(try ScheduleIndex.keys(listedIn: nil, number: 0) == [])
    let root = ScheduleIndex.encodedRoot(listing: [63, 0, 7])
    #expect(try ScheduleIndex.parts(listedIn: root) == [0, 7, 63])
    #expect(throws: TaskQueueError.self) {
      try ScheduleIndex.keys(listedIn: Array("12345".utf8), number: 0)
    }
    #expect(throws: TaskQueueError.self) { try ScheduleIndex.parts(listedIn: Array("5".utf8)) }
  }
}
