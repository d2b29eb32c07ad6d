import Foundation

@testable import SteadfastQueue

extension JSONFileCore {
  /// Makes a store over a file in memory, whose jobs the executor does.
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

  /// Leaves two lines in the file that a compaction drops.
  func insertAndCancel(_ number: Int) async throws {
    try await insert(.make(number))
    let end = TaskChange.cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: false)
    _ = try await apply([end], .durable)
  }
}
