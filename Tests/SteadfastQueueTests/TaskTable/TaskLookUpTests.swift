import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

/// Tests lookups that examine the table in slices, between which the table may change.
@Suite struct TaskLookUpTests {
  private static let states: [TaskState] = [.waiting, .parked, .paused, .succeeded, .abandoned]

  private static func record(_ number: Int, _ random: inout SplitMix64) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: "name \(random.next() % 4)",
      payload: StoredPayload([], format: .binary),
      createdDate: .seconds(0),
      uniqueKey: random.next() % 4 == 0 ? "key \(number)" : nil,
      tags: random.next() % 100 == 0 ? ["rare", "red"] : [],
      metadata: number % 7 == 0 ? ["tenant": "\(number % 3)", "kind": "seven"] : [:],
      state: states.randomElement(using: &random) ?? .waiting,
      availableDate: .seconds(Double(random.next() % 100)),
      isPostponed: random.next() % 3 == 0
    )
  }

  private static func table(_ count: Int, _ random: inout SplitMix64) -> TaskTable {
    var table = TaskTable()
    for number in (1...count).shuffled(using: &random) { table.insert(record(number, &random)) }
    return table
  }

  static let filters = [
    TaskFilter(), .unfinished, .deadLetters, TaskFilter(states: [.running]),
    TaskFilter(states: [.succeeded, .abandoned, .cancelled]),
    TaskFilter(names: ["name 1", "unknown"]), TaskFilter(names: ["unknown"]),
    .retrying, TaskFilter(isPostponed: false, availableDates: .seconds(10)..<(.seconds(90))),
    TaskFilter(excludedNames: ["name 1"]),
    TaskFilter(excludedNames: Set((0...5).map { "name \($0)" })), TaskFilter(tags: ["rare"]),
    TaskFilter(tags: []), TaskFilter(metadata: ["tenant": "1", "kind": "seven"]),
    TaskFilter(metadata: ["tenant": "1", "kind": "eight"]), TaskFilter(metadata: [:]),
    TaskFilter(ids: Set((500...1700).map { .numbered($0) }), names: ["name 2"]),
    TaskFilter(states: [.paused], uniqueKeys: Set((1...1500).map { "key \($0)" })),
  ]

  @Test(arguments: filters, [1, 400, 3_000])
  func `pages contain exactly the tasks that match the filter`(filter: TaskFilter, count: Int) {
    var random = SplitMix64(seed: 7)
    let table = Self.table(count, &random)
    let expected = (1...count).compactMap { table.record(of: .numbered($0)) }
      .filter(filter.matches).map(\.id)
    #expect(table.count(matching: filter) == expected.count)
    for limit in [1, 100, 700, .max] where count / limit < 50 {
      var found: [TaskID] = []
      while true {
        let page = table.tasks(matching: filter, after: found.last, limit: limit).map(\.id)
        #expect(page.count <= limit)
        if page.isEmpty { break }
        found += page
      }
      #expect(found == expected)
    }
    #expect(table.tasks(matching: filter, after: nil, limit: 0).isEmpty)
  }

  @Test func `each slice of a lookup examines a limited number of tasks, even if few match`() {
    var table = TaskTable()
    for number in 1...10_000 { table.insert(.make(number)) }
    var lookUp = TaskLookUp(TaskFilter(tags: ["none"]), after: nil, limit: 10, newestFirst: false)
    var slices = 0
    while !lookUp.isOver {
      table.advance(&lookUp)
      slices += 1
    }
    #expect(slices == 10_000 / TaskLookUp.sliceSize + 1)
    #expect(lookUp.records.isEmpty)
  }

  @Test(arguments: filters, [false, true])
  func `tasks that exist throughout a lookup are found once, even if others come and go`(
    filter: TaskFilter,
    newestFirst: Bool
  ) {
    var random = SplitMix64(seed: 3)
    var table = Self.table(2_000, &random)
    var untouched = Set((1...2_000).map { TaskID.numbered($0) })
    let first = TaskID.numbered(newestFirst ? 1_990 : 9)
    var lookUp = TaskLookUp(filter, after: first, limit: .max, newestFirst: newestFirst)
    var number = 2_000
    while !lookUp.isOver {
      table.advance(&lookUp)
      for _ in 0..<100 {
        let id = TaskID.numbered(1 + Int(random.next() % 2_000))
        untouched.remove(id)
        let changes: [TaskChange] = [
          .cancel(.unclaimed(id), at: .seconds(1), retains: true),
          .restart(.unclaimed(id), availableDate: .seconds(2)), .remove(id),
        ]
        _ = table.apply([changes[Int(random.next() % 3)]])
      }
      number += 1
      table.insert(Self.record(number, &random))
    }
    let found = lookUp.records.map(\.id)
    #expect(zip(found, found.dropFirst()).allSatisfy { newestFirst ? $0 > $1 : $0 < $1 })
    #expect(lookUp.records.allSatisfy(filter.matches))
    let expected = untouched.filter { id in
      (newestFirst ? id < first : id > first) && (table.record(of: id).map(filter.matches) ?? false)
    }
    #expect(expected.subtracting(found) == [])
  }
}
