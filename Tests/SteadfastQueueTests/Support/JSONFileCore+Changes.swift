import Foundation
import Testing

@testable import SteadfastQueue

extension JSONFileCore {
  /// Makes a store over a file in memory, which runs its jobs on the executor.
  convenience init(
    _ storage: MemoryStorage,
    _ executor: ManualExecutor,
    compactionPolicy: CompactionPolicy = CompactionPolicy()
  ) {
    self.init(
      URL(filePath: "/queue.jsonl"),
      compactionPolicy: compactionPolicy,
      thread: { executor }
    ) { (nil, storage) }
  }

  @discardableResult
  func insert(_ record: TaskRecord) async throws -> [ChangeOutcome] {
    try await apply([.insert(record, onDuplicate: .keep)], .durable)
  }

  /// Adds two lines to the file that a compaction drops.
  func insertAndCancel(_ number: Int) async throws {
    try await insert(.make(number))
    let end = TaskChange.cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: false)
    _ = try await apply([end], .durable)
  }

  /// Inserts tasks, each of which is claimed and succeeds at once.
  func churn(_ numbers: ClosedRange<Int>) async throws {
    for number in numbers {
      let insertion = TaskChange.insert(.make(number, name: "Churn"), onDuplicate: .keep)
      _ = try await apply([insertion], .relaxed)
      let claim = try await claim(ClaimRequest(limit: 1, names: ["Churn": 1], now: .seconds(0)))
      let lease = try #require(claim.tasks.first?.lease)
      _ = try await apply([.succeed(lease, at: .seconds(1), retains: false)], .relaxed)
    }
  }
}
