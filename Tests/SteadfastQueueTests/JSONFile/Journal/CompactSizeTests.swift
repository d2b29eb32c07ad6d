import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the size that a table's tasks would have in a compacted file.
@Suite struct CompactSizeTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore() -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    return JSONFileCore(URL(filePath: "/queue.jsonl"), thread: { executor }) { (nil, storage) }
  }

  private func run<Value: Sendable>(
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value { try await executor.run(body) }

  @Test func `the store and a reader of its file count the same number of bytes for the tasks`()
    async throws
  {
    let core = makeCore()
    let sizes = try await run { [storage] in
      try await core.open()
      let request = ClaimRequest(limit: 6, names: ["Note": 6], now: .seconds(10))
      var sizes: [(memory: Int, file: Int)] = []
      for round in 0..<6 {
        for number in 1...10 {
          let record = TaskRecord.make(100 * round + number, key: "\(number % 4)")
          _ = try await core.apply([.insert(record, onDuplicate: .replace)], .durable)
        }
        let failure = TaskFailure(reason: "refused \(round)", date: .seconds(1))
        for (index, lease) in try await core.claim(request).tasks.map(\.lease).enumerated() {
          let change: TaskChange =
            switch index {
            case 0: .abandon(lease, failure: failure, retains: true)
            case 1: .park(lease, failure: failure)
            case 2: .succeed(lease, at: .seconds(2), retains: false)
            case 3: .restart(.claimed(lease), availableDate: .seconds(0))
            default: .retry(lease, availableDate: .seconds(0), retryCount: 1, failure: failure)
            }
          _ = try await core.apply([change], .durable)
        }
        _ = try await core.apply(
          [.prune(.abandoned, endedBefore: nil, keepingLatest: 2, now: .distantPast)],
          .durable
        )
        let file = try JournalReader.read(storage.bytes).table
        sizes.append((core.read { $0.byteCount }, file.byteCount))
      }
      return sizes
    }
    #expect(sizes.map(\.memory) == sizes.map(\.file))
    #expect(sizes.allSatisfy { $0.memory > 300 })
    try await run {
      _ = try await core.apply(
        core.read { $0.tasks(matching: TaskFilter(), after: nil, limit: .max) }
          .filter { !$0.state.isFinished }
          .map { .cancel(.unclaimed($0.id), at: .seconds(3), retains: false) },
        .durable
      )
      _ = try await core.apply(
        [.prune(.abandoned, endedBefore: nil, keepingLatest: 0, now: .distantPast)],
        .durable
      )
    }
    #expect(core.read { $0.taskCount } == 0)
    #expect(core.read { $0.byteCount } == 0)
  }

  @Test
  func `an estimate that was too low is corrected until the estimate has fallen by a quarter`() {
    let lines = [JournalBody](repeating: .seal, count: 100)
    let size = lines.reduce(0) { $0 + $1.byteCount }
    var found = SizeUnderestimate()
    #expect(found.bytesToAdd(to: size) == 0)
    found.add(lines, estimate: size / 4 * 3 + 4)
    #expect(found.bytesToAdd(to: size) == 0)
    found.add(lines, estimate: size / 4)
    let estimate = size / 4 * 4 + 4
    #expect(found.bytesToAdd(to: estimate) == 2 * size - estimate)
    #expect(found.bytesToAdd(to: estimate / 5 * 4) == 2 * size - estimate)
    #expect(found.bytesToAdd(to: estimate / 4 * 3) == 0)
    #expect(found.bytesToAdd(to: 0) == 0)
  }

  @Test func `a file whose tasks have ended since it was opened is compacted`() async throws {
    let (storage, executor) = (storage, executor)
    let makeCore = {
      JSONFileCore(
        storage,
        executor,
        compactionPolicy: CompactionPolicy(minimumSize: 2_000, spareSize: 1 << 20)
      )
    }
    let first = makeCore()
    try await run {
      try await first.open()
      for number in 1...40 { try await first.insert(.make(number)) }
      try await first.close()
    }
    let size = storage.bytes.count
    let core = makeCore()
    try await run {
      try await core.open()
      for number in 1...40 {
        let end = TaskChange.cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: false)
        _ = try await core.apply([end], .durable)
      }
    }
    #expect(try await run { try await core.statistics() }.lastCompaction != nil)
    #expect(storage.bytes.count < size / 4)
    try await run { try await core.close() }
  }
}
