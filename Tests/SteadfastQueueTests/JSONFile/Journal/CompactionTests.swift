import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct CompactionTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore(
    minimumSize: Int = 2000,
    flushing: JSONFileStore.Flushing = .eachBatch
  ) -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    let policy = CompactionPolicy(
      minimumSize: minimumSize,
      spareSize: 0,
      stepSize: 300,
      flushSize: 1000
    )
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      flushing: flushing,
      compactionPolicy: policy,
      date: { .seconds(7) },
      announce: { _ in },
      thread: { executor }
    ) { (nil, storage) }
  }

  /// Runs the body, and all jobs of the store.
  private func run(_ body: @escaping @Sendable () async throws -> Void) async throws {
    try await executor.run(body)
  }

  private func digest() throws -> UInt64 { try JournalReader.read(storage.bytes).table.digest() }

  @Test func `a file that is mostly dead is compacted automatically, and no task is lost`()
    async throws
  {
    let core = makeCore()
    try await run {
      try await core.open()
      _ = try await core.apply(
        (1...3).map { .insert(.make($0, key: "\($0)"), onDuplicate: .keep) },
        .durable
      )
      try await core.churn(100...160)
    }
    let statistics = try await executor.run { try await core.statistics() }
    #expect(statistics.taskCount == 3)
    #expect(statistics.byteCount < 4500)
    #expect(statistics.byteCount == storage.bytes.count)
    #expect(statistics.lastCompaction?.date == .seconds(7))
    let contents = try JournalReader.read(storage.bytes)
    #expect(contents.generation > 1)
    #expect(contents.lastCompaction == statistics.lastCompaction)
    #expect(contents.table.taskCount == 3)
    #expect(storage.bytes(of: .replacement) == nil)
  }

  @Test func `a compacted file contains the same tasks, in the same order, with the same keys`()
    async throws
  {
    let core = makeCore(minimumSize: .max)
    try await run {
      try await core.open()
      try await makeTasksInEveryState(core)
      try await core.close()
    }
    let before = try digest()
    let compacting = makeCore(minimumSize: 0)
    try await run {
      try await compacting.open()
      try await compacting.churn(1000...1100)
    }
    try await run { try await compacting.close() }
    let contents = try JournalReader.read(storage.bytes)
    #expect(contents.generation > 1)
    #expect(contents.table.digest() == before)
  }

  @Test func `a compacted file contains every field of a task, whatever its state`() async throws {
    let core = makeCore(minimumSize: .max)
    try await run {
      try await core.open()
      let everything = TaskRecord(
        id: .numbered(1),
        name: "Every \"thing\"",
        payload: StoredPayload([0, 10, 255], format: .binary, version: 3),
        priority: -7,
        createdDate: .seconds(1),
        maxRetries: .alwaysRetry,
        usesBackoff: false,
        uniqueKey: "k",
        tags: ["red", "é"],
        metadata: ["tenant": "é", "\"k\"": "line\nfeed"],
        timeLimit: .milliseconds(1_250),
        expiryDate: .seconds(9_999),
        availableDate: .seconds(3)
      )
      let others = (2...5).map { TaskChange.insert(.make($0), onDuplicate: .keep) }
      _ = try await core.apply([.insert(everything, onDuplicate: .keep)] + others, .durable)
      _ = try await core.apply(
        [
          .pause(.unclaimed(.numbered(2))),
          .cancel(.unclaimed(.numbered(3)), at: .seconds(4), retains: true),
          .cancel(.unclaimed(.numbered(4)), at: .seconds(5), retains: true),
        ],
        .durable
      )
      _ = try await core.apply(
        [.restart(.unclaimed(.numbered(4)), availableDate: .seconds(6))],
        .durable
      )
      try await core.close()
    }
    func records() throws -> [String] {
      try JournalReader.read(storage.bytes).table
        .tasks(matching: TaskFilter(), after: nil, limit: .max)
        .map { record in
          let bytes = try record.payload.bytes()
          return """
            \(record.id) \(record.name) \(bytes) \(record.payload.format) \(record.payload.version) \
            \(record.priority.rawValue) \(record.createdDate) \(record.maxRetries) \
            \(record.usesBackoff) \(record.uniqueKey ?? "-") \(record.tags.sorted()) \
            \(record.metadata.sorted { $0.key < $1.key }) \
            \(record.timeLimit ?? .zero) \(record.expiryDate ?? .distantPast) \(record.state) \
            \(record.availableDate) \(record.retryCount) \(record.finishedDate ?? .distantPast)
            """
        }
    }
    let before = try records()
    #expect(before.count == 5)
    let compacting = makeCore(minimumSize: 0)
    try await run {
      try await compacting.open()
      try await compacting.churn(1000...1100)
      try await compacting.close()
    }
    #expect(try JournalReader.read(storage.bytes).generation > 1)
    #expect(try records() == before)
  }

  @Test func `a running task blocks its order key after a compaction`() throws {
    var table = TaskTable()
    for number in 1...2 { table.insert(.make(number, order: "o")) }
    _ = table.apply([.cancel(.unclaimed(.numbered(1)), at: .seconds(1), retains: true)])
    let running = table.claim(9).numbers
    #expect(running == [2])
    _ = table.apply([.restart(.unclaimed(.numbered(1)), availableDate: .seconds(1))])
    let journal = try Journal.open(storage).journal
    var compaction = try Compaction(of: journal, snapshot: table.snapshot, in: storage)
    try compaction.finish(journal, at: .seconds(2))
    var read = try JournalReader.readAsWritten(JournalSource(storage.bytes)).table
    #expect(read.brokenInvariants() == [])
    // While task 2 runs, no other task with its order key runs.
    let others = read.claim(9, at: 5).numbers
    #expect(others == [])
    let isBegun = read.replay(.begin(.numbered(1)))
    #expect(!isBegun)
  }

  @Test(arguments: [
    MemoryStorage.Call.open(.replacement), .create(.replacement), .append, .synchronize,
    .openFolder, .rename(.replacement, .journal), .read,
  ])
  func `a failed compaction changes nothing`(call: MemoryStorage.Call) async throws {
    let core = makeCore(minimumSize: .max)
    try await run {
      try await core.open()
      try await core.churn(1...30)
      try await makeTasksInEveryState(core)
    }
    let before = try digest()
    var journal = try Journal.open(storage).journal
    let snapshot = core.read(\.snapshot)
    let bytes = storage.bytes
    func compact(_ call: MemoryStorage.Call?) throws {
      let failsAtOnce = call == .open(.replacement) || call == .create(.replacement)
      if let call, failsAtOnce { storage.fail(call, EIO) }
      var compaction = try Compaction(
        of: journal,
        snapshot: snapshot,
        in: storage,
        CompactionPolicy(minimumSize: 0, stepSize: 300)
      )
      if let call, !failsAtOnce { storage.fail(call, EIO) }
      try compaction.finish(journal, at: .seconds(0))
    }
    if case .read = call {
      // Lines that are appended during the compaction are read from the journal.
      let begun = try Compaction(of: journal, snapshot: snapshot, in: storage)
      try journal.append([[JournalBody(.seal)]])
      var compaction = begun
      storage.fail(.read, EIO)
      #expect(throws: Compaction.Failure.self) {
        try compaction.finish(journal, at: .seconds(0))
      }
      #expect(storage.bytes.starts(with: bytes))
    } else {
      #expect(throws: (any Error).self) { try compact(call) }
      #expect(storage.bytes == bytes)
    }
    #expect(try digest() == before)
    #expect(storage.bytes(of: .replacement) == nil)
    // The next attempt succeeds.
    try compact(nil)
    let contents = try JournalReader.read(storage.bytes)
    #expect(contents.generation == 2)
    #expect(contents.table.digest() == before)
  }

  @Test func `a compaction whose rename isn't durable poisons the store`() async throws {
    let core = makeCore()
    try await run { try await core.open() }
    storage.fail(.synchronizeFolder, EIO)
    await #expect(throws: JSONFileError.self) {
      try await run { try await core.churn(1...200) }
    }
    let error = await #expect(throws: JSONFileError.self) { try await core.open() }
    #expect(error?.code == .outcomeUnknown)
    let fresh = makeCore()
    try await run {
      try await fresh.open()
      try await fresh.churn(300...310)
    }
    try await run { try await fresh.close() }
  }

  @Test func `opening a file removes the leftovers of a crash during a compaction`() throws {
    _ = try Journal.open(storage)
    _ = try Journal.makeReplacement(in: storage, generation: 2, beside: nil)
    #expect(storage.bytes(of: .replacement) != nil)
    _ = try Journal.open(storage)
    #expect(storage.bytes(of: .replacement) == nil)
  }

  @Test func `damage in a compacted file is found`() async throws {
    let core = makeCore()
    try await run {
      try await core.open()
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
      try await core.churn(100...140)
    }
    let bytes = storage.bytes
    let size = try #require(try JournalReader.read(bytes).lastCompaction?.bytesAfter)
    let lastLine = bytes[..<(size - 1)].lastIndex(of: 0x0A) ?? 0
    for offset in 0..<lastLine {
      var damaged = bytes
      damaged[offset] ^= 1
      #expect(throws: JournalProblem.self) { try JournalReader.read(damaged) }
    }
  }
}

/// Makes changes that leave tasks in every state.
private func makeTasksInEveryState(_ core: JSONFileCore) async throws {
  var leases: [Lease] = []
  for number in 1...40 {
    let record = TaskRecord.make(
      100 + number,
      available: Double(number % 5),
      key: "\(number % 7)"
    )
    _ = try await core.apply([.insert(record, onDuplicate: .replace)], .durable)
    let request = ClaimRequest(limit: number % 3, names: ["Note": .max], now: .seconds(3))
    leases += try await core.claim(request).tasks.map(\.lease)
    guard number % 2 == 0, let lease = leases.popLast() else { continue }
    let failure = TaskFailure(reason: "refused", date: .seconds(2))
    let change: TaskChange =
      switch number % 5 {
      case 0: .abandon(lease, failure: failure, retains: true)
      case 1: .park(lease, failure: failure)
      case 2: .succeed(lease, at: .seconds(2), retains: true)
      default: .retry(lease, availableDate: .seconds(4), retryCount: 1, failure: failure)
      }
    _ = try await core.apply([change], .durable)
  }
}
