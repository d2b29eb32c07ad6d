import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Ends more dependencies in one change than a task records as failed.
@Suite(.virtualTime) struct ManyFailuresTests {
  private let first = TaskRecord.make(1)
  private let follower = TaskRecord.make(9_999)
  private let members = (2...TaskDependencies.mostFailures + 101).map { number in
    TaskRecord.make(
      number,
      dependencies: TaskDependencies(on: [.numbered(1)], follower: .numbered(9_999))
    )
  }

  @Test(arguments: StoreKind.allCases)
  func `all stores record, report and restart a batch whose tasks all failed in the same way`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      try await store.open()
      let records = [first, follower] + members
      let insertions = records.map { TaskChange.insert($0, onDuplicate: .keep) }
      let isAdded = try await store.apply(insertions, durability: .relaxed).allSatisfy(\.isDone)
      #expect(isAdded)
      let along = Consequences(tasks: members.map(\.id) + [follower.id])

      let end = TaskChange.cancel(.unclaimed(first.id), at: .seconds(1), retains: true)
      let ended = try await store.apply([end], durability: .relaxed)
      #expect(ended == [.doneWithConsequences(along)])
      var found = try await record(of: follower.id, in: store)
      #expect(found.state == .cancelled)
      #expect(found.dependencies.cause == members[0].id)
      let recorded = members.prefix(TaskDependencies.mostFailures).map(\.id)
      #expect(found.dependencies.failed.keys.sorted() == recorded)
      let count = members.count
      #expect(found.dependencies.batch == BatchProgress(total: count, failed: count))

      let restart = TaskChange.restart(.unclaimed(first.id), availableDate: .seconds(2))
      let restarted = try await store.apply([restart], durability: .relaxed)
      #expect(restarted == [.doneWithConsequences(along)])
      found = try await record(of: follower.id, in: store)
      #expect(found.state == .waiting)
      #expect(found.dependencies == TaskDependencies(batch: BatchProgress(total: count)))
    }
  }

  private func record(of id: TaskID, in store: any Persistence) async throws -> TaskRecord {
    let filter = TaskFilter(ids: [id])
    return try #require(try await store.tasks(matching: filter, after: nil, limit: 1).first)
  }
}
