import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskFilterTests {
  var table = TaskTable()

  @Test mutating func `lookups return pages in the order of IDs`() {
    for number in (1...5).reversed() { table.insert(.make(number)) }
    let first = table.tasks(matching: TaskFilter(), after: nil, limit: 2)
    let second = table.tasks(matching: TaskFilter(), after: first.last?.id, limit: 9)
    #expect(first.map(\.id) == [.numbered(1), .numbered(2)])
    #expect(second.map(\.id) == [.numbered(3), .numbered(4), .numbered(5)])
  }

  @Test(arguments: [
    (TaskFilter(ids: [.numbered(2), .numbered(9)]), [2]),
    (TaskFilter(names: ["Note"]), [1, 2]),
    (TaskFilter(excludedNames: ["Note"]), [3]),
    (TaskFilter(states: [.running]), [1]),
    (TaskFilter(uniqueKeys: ["k", "other"]), [3]),
    (TaskFilter(names: ["Note"], states: [.waiting]), [2]),
  ])
  mutating func `a filter matches tasks that meet every criterion`(
    filter: TaskFilter,
    numbers: [Int]
  ) {
    table.insert(.make(1))
    table.insert(.make(2))
    table.insert(.make(3, name: "Other", key: "k"))
    _ = table.claim(1)
    #expect(table.tasks(matching: filter, after: nil, limit: 9).map { Int($0.id.low) } == numbers)
    #expect(table.count(matching: filter) == numbers.count)
  }

  @Test(arguments: [
    ("K", "\u{212a}"), ("\u{212a}", "K"), ("\u{e9}", "e\u{301}"), ("e\u{301}", "\u{e9}"),
  ])
  mutating func `tasks have the same name only if the bytes of their names are equal`(
    one: String,
    two: String
  ) {
    #expect(one == two)
    for (number, name) in [one, two, two, one].enumerated() {
      table.insert(.make(number, name: name))
    }
    #expect(table.lanes.queues[0].indices.count == 2)
    #expect(table.count(matching: TaskFilter(names: [one])) == 2)
    #expect(table.claim(9, [two: 9]).numbers == [1, 2])
  }

  @Test mutating func `a filter by unique key matches holders, successors and finished tasks`() {
    let filter = TaskFilter(uniqueKeys: ["k"])
    func numbers() -> [Int] {
      table.tasks(matching: filter, after: nil, limit: 9).map { Int($0.id.low) }
    }
    table.insert(.make(1, key: "k"))
    let lease = table.claim(1)[0].lease
    // A lookup does not find a task whose insertion is only staged.
    let staged = table.stage([.insert(.make(2, key: "k"), onDuplicate: .replace)])
    #expect(numbers() == [1])
    for change in staged { table.commit(change) }
    #expect(numbers() == [1, 2])
    #expect(table.count(matching: filter) == 2)
    let again = table.stage([.insert(.make(3, name: "Other", key: "k"), onDuplicate: .keep)])
    #expect(numbers() == [1, 2])
    for change in again.reversed() { table.rollBack(change) }
    #expect(numbers() == [1, 2])
    _ = table.apply([.insert(.make(4, name: "Other", key: "k"), onDuplicate: .keep)])
    #expect(numbers() == [1, 2, 4])
    _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
    #expect(numbers() == [1, 2, 4])
    _ = table.apply([.remove(.numbered(1))])
    #expect(numbers() == [2, 4])
    #expect(table.brokenInvariants() == [])
  }
}
