#if SQLite
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// The removal of long chains of tasks.
struct RemovalTests {
  enum Way: CaseIterable { case removal, pruning, destruction }

  /// SQLite itself follows references through at most 1,000 rows, and this chain is longer.
  @Test(arguments: Way.allCases)
  func `a long chain of cascaded cancellations can be removed`(_ way: Way) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let first = TaskRecord.make(1)
      let others = (2...1_100).map { (number: UInt64) in
        TaskRecord.make(
          number,
          dependencies: TaskDependencies(on: [TaskRecord.make(number - 1).id])
        )
      }
      let insertions = ([first] + others).map { TaskChange.insert($0, onDuplicate: .keep) }
      let outcomes = try await store.apply(insertions, durability: .durable)
      #expect(outcomes == insertions.map { _ in .done })
      let request = ClaimRequest.make()
      let claim = try await store.claim(request)
      let lease = try #require(claim.tasks.first).lease
      let failure = TaskFailure(reason: "no", date: request.now)
      let along = ChangeOutcome.doneWithConsequences(Consequences(tasks: others.map(\.id)))
      let end = TaskChange.abandon(lease, failure: failure, retains: true)
      #expect(try await store.apply([end], durability: .durable) == [along])
      switch way {
      case .removal:
        #expect(try await store.apply([.remove(first.id)], durability: .durable) == [along])
        #expect(try await store.count(matching: TaskFilter()) == 0)
      case .pruning:
        let pruning = TaskChange.prune(
          .abandoned,
          endedBefore: request.now + 1,
          keepingLatest: nil,
          now: request.now
        )
        #expect(try await store.apply([pruning], durability: .durable) == [.done])
        #expect(try await store.count(matching: TaskFilter()) == 0)
      case .destruction:
        try await store.destroy()
        #expect(try tableDefinitions(at: url) == [])
      }
    }
  }
}
#endif
