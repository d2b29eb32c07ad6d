import Foundation
import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Performs random operations on a file whose size is limited, and compares the results with the
/// file's contents.
///
/// For a long run, with a tenth as many files as runs:
/// `STEADFAST_RUNS=20000 swift test -c release -Xswiftc -enable-testing --filter RoomModelTests`.
@Suite struct RoomModelTests {
  private static let limit = 12_000

  @Test func `no insertion exceeds the size limit, and no insertion that fits is refused`()
    async throws
  {
    let counts = Log<(accepted: Int, refused: Int, generation: Int)>()
    let files = max(1, Soak.runs(short: 40) / 10)
    for seed in 0..<UInt64(files) {
      let run = LimitedRun(seed: seed, limit: Self.limit)
      counts.add(try await run.perform(operations: 150))
    }
    // Both outcomes occurred, and the files were compacted.
    #expect(counts.entries.map(\.accepted).reduce(0, +) > 10 * files)
    #expect(counts.entries.map(\.refused).reduce(0, +) > 10 * files)
    #expect(counts.entries.contains { $0.generation > 3 })
  }
}

/// Random operations on one file.
private final class LimitedRun: Sendable {
  private let seed: UInt64
  private let limit: Int
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  init(seed: UInt64, limit: Int) {
    self.seed = seed
    self.limit = limit
  }

  private func makeCore() -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: limit),
      compactionPolicy: CompactionPolicy(minimumSize: .max, stepSize: 700, flushSize: 2000),
      thread: { executor }
    ) { (nil, storage) }
  }

  func perform(
    operations: Int
  ) async throws -> (accepted: Int, refused: Int, generation: Int) {
    var random = Randomness.seeded(seed).makeGenerator()
    var core = makeCore()
    try await executor.run { [core] in try await core.open() }
    var (accepted, refused) = (0, 0)
    for number in 1...operations {
      switch random.next(upperBound: 10 as UInt64) {
      case 0..<6:
        let record = record(number, length: Int(random.next(upperBound: 1500 as UInt64)))
        if try await insert(record, into: core) { accepted += 1 } else { refused += 1 }
      case 6..<9:
        let count = Int(1 + random.next(upperBound: 4 as UInt64))
        let retries = random.next(upperBound: 3 as UInt64) == 0
        try await executor.run { [core] in
          try await claimAndEndTasks(in: core, limit: count, retries: retries)
        }
      default:
        try await executor.run { [core] in try await core.close() }
        core = makeCore()
        try await executor.run { [core] in try await core.open() }
      }
      guard number.isMultiple(of: 10) else { continue }
      let file = try JournalReader.read(storage.bytes).table
      #expect(file.ids == core.read { $0.ids }, "seed \(seed), operation \(number)")
    }
    return (accepted, refused, try JournalReader.read(storage.bytes).generation)
  }

  private func record(_ number: Int, length: Int) -> TaskRecord {
    let text = String(repeating: "x", count: length)
    return TaskRecord.make(number).replacing(
      payload: StoredPayload(Array(#"{"text":"\#(text)"}"#.utf8), format: .json)
    )
  }

  /// Inserts a task, checks the store's result, and returns whether the task fitted.
  private func insert(_ record: TaskRecord, into core: JSONFileCore) async throws -> Bool {
    let change = TaskChange.insert(record, onDuplicate: .keep)
    let isAccepted = try await executor.run {
      do {
        return try await core.apply([change], .durable) == [.done]
      } catch let error as JSONFileError where error.code == .fileFull {
        return false
      }
    }
    let size = storage.bytes.count
    guard !isAccepted else {
      #expect(size <= limit, "seed \(seed), task \(record.id)")
      return true
    }
    let needed = try JournalBody(.change(change)).byteCount
    let compactSize = try JournalReader.read(storage.bytes).table.compactSize
    #expect(
      compactSize + needed > limit || size - compactSize < size / 4,
      "seed \(seed), task \(record.id): \(size) bytes, \(compactSize) of them alive"
    )
    #expect(size + needed > limit)
    return false
  }
}

/// Claims tasks, and reports that they succeeded or failed.
private func claimAndEndTasks(in core: JSONFileCore, limit count: Int, retries: Bool) async throws {
  let request = ClaimRequest(limit: count, names: ["Note": count], now: .seconds(10))
  let failure = TaskFailure(reason: "refused", date: .seconds(1))
  _ = try await core.apply(
    try await core.claim(request).tasks.map { task in
      retries
        ? .retry(task.lease, availableDate: .seconds(0), retryCount: 1, failure: failure)
        : .succeed(task.lease, at: .seconds(1), retains: false)
    },
    .durable
  )
}

extension TaskTable {
  fileprivate var ids: [TaskID] {
    tasks(matching: TaskFilter(), after: nil, limit: .max).map(\.id)
  }
}
