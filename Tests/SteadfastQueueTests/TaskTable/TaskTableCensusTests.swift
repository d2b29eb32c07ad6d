import Foundation
import Testing

@testable import SteadfastQueue

/// The census of tables whose tasks are in unusual lists.
@Suite struct TaskTableCensusTests {
  /// Returns what a census must be, from all tasks.
  private func counted(_ table: TaskTable, at now: Date) -> TaskCensus {
    let tasks = table.tasks(matching: TaskFilter(queue: nil), after: nil, limit: .max)
    return TaskCensus(date: now, rows: tasks.map { TaskCensus.Row(counting: $0, at: now) })
  }

  @Test(arguments: [1, 4, 250, 499])
  func `a census before and after claims counts the tasks whose dates have come`(passed: Int) {
    var table = TaskTable()
    for number in 1...500 {
      let date = Double(number % 2 == 0 ? number : 501 - number)
      table.insert(.make(number, name: "\(number % 3)", available: date))
    }
    let now = Date.seconds(Double(passed))
    #expect(table.census(at: now) == counted(table, at: now))
    // Afterwards, some tasks are ready although their dates have not come at the earlier date.
    _ = table.claim(ClaimRequest(limit: 0, names: [:], otherNames: 1, now: .seconds(300)))
    for date in [now, .seconds(300), .seconds(400)] {
      #expect(table.census(at: date) == counted(table, at: date))
    }
  }

  @Test func `a task whose insertion is not committed is not counted`() {
    var table = TaskTable()
    table.insert(.make(1))
    let staged = table.stage(.insert(.make(2), onDuplicate: .keep))
    #expect(table.census(at: .seconds(1)).rows.map(\.count) == [1])
    table.commit(staged)
    #expect(table.census(at: .seconds(1)).rows.map(\.count) == [2])
  }

  @Test func `a store without a census of its own looks up all tasks, page by page`() async throws {
    struct OwnStore: Persistence {
      let base = InMemoryStore()
      func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
        try await base.apply(batch, durability: durability)
      }
      func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }
      func tasks(
        matching filter: TaskFilter,
        after id: TaskID?,
        limit: Int,
        newestFirst: Bool
      ) async throws -> [TaskRecord] {
        try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
      }
      func count(matching filter: TaskFilter) async throws -> Int {
        try await base.count(matching: filter)
      }
      func value(named name: String) async throws -> [UInt8]? {
        try await base.value(named: name)
      }
      func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
        try await base.values(prefix: prefix)
      }
      func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }
      func destroy() async throws { try await base.destroy() }
    }
    let store = OwnStore()
    let tasks = (1...1_100).map { TaskRecord.make($0, name: $0 % 7 == 0 ? "B" : "A") }
    _ = try await store.apply(
      tasks.map { .insert($0, onDuplicate: .keep) },
      durability: .relaxed
    )
    let own = try await store.census(at: .seconds(5))
    #expect(own.rows.map(\.count) == [943, 157])
    #expect(try await store.base.census(at: .seconds(5)) == own)
  }
}
