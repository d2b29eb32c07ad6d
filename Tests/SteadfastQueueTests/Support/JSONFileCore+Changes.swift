@testable import SteadfastQueue

extension JSONFileCore {
  @discardableResult
  func insert(_ record: TaskRecord) async throws -> [ChangeOutcome] {
    try await apply([.insert(record, onDuplicate: .keep)], .durable)
  }

  /// Leaves two lines in the file that a compaction drops.
  func insertAndCancel(_ number: Int) async throws {
    try await insert(.make(number))
    let end = TaskChange.cancel(.unclaimed(.numbered(number)), at: .seconds(1), keeps: false)
    _ = try await apply([end], .durable)
  }
}
