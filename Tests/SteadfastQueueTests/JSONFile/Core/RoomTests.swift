import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct RoomTests {
  private static let limit = 4000
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore(limit: Int? = RoomTests.limit) -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: limit),
      compactionPolicy: CompactionPolicy(minimumSize: .max, stepSize: 300, flushSize: 1000),
      thread: { executor }
    ) { (nil, storage) }
  }

  private func run<Value: Sendable>(
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value { try await executor.run(body) }

  private var generation: Int { (try? JournalReader.read(storage.bytes).generation) ?? 0 }

  @Test func `a task that would make the file too large is refused, and the error says why`()
    async throws
  {
    let core = makeCore()
    let (count, error) = try await run { try await fill(core) }
    #expect(count > 5)
    #expect(error.code == .fileFull)
    #expect(error.message.contains("/queue.jsonl is full"))
    #expect(error.message.contains("maxFileSize is \(Self.limit)"))
    #expect(storage.bytes.count <= Self.limit)
    #expect(storage.bytes.count > Self.limit - 400)
    #expect(core.read { $0.taskCount } == count)
    #expect(try JournalReader.read(storage.bytes).table.taskCount == count)
  }

  @Test func `no task of a batch that doesn't fit is stored, and no space stays reserved for it`()
    async throws
  {
    let core = makeCore()
    let batch = (1...40).map {
      TaskChange.insert(.make($0, key: "key \($0)"), onDuplicate: .reject)
    }
    let error = try await run {
      try await core.open()
      return await #expect(throws: JSONFileError.self) { try await core.apply(batch, .durable) }
    }
    #expect(error?.code == .fileFull)
    let outcomes = try await run { try await core.apply(Array(batch[..<5]), .durable) }
    #expect(outcomes == Array(repeating: .done, count: 5))
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 5)
  }

  @Test func `a duplicate task needs no space, so a full file still reports it as a duplicate`()
    async throws
  {
    let core = makeCore()
    let outcomes = try await run {
      _ = try await core.openAndInsert(.make(1, key: "key"))
      _ = try await fill(core)
      return try await core.apply([.insert(.make(2, key: "key"), onDuplicate: .keep)], .durable)
    }
    #expect(outcomes == [.duplicate(of: .numbered(1))])
  }

  @Test func `changes of stored tasks are written however full the file is`() async throws {
    let (core, storage) = (makeCore(), storage)
    let (count, outcomes, size) = try await run {
      let (count, _) = try await fill(core)
      let leases = try await claimAll(core)
      let failure = TaskFailure(reason: String(repeating: "x", count: 500), date: .seconds(1))
      let retries = leases.map {
        TaskChange.retry($0, availableDate: .seconds(0), retryCount: 1, failure: failure)
      }
      var outcomes = try await core.apply(retries, .durable)
      // Even a compacted file exceeds its limit now, because it contains the error messages.
      let size = storage.bytes.count
      outcomes += try await core.apply(
        try await claimAll(core).map { .succeed($0, at: .seconds(2), retains: false) },
        .durable
      )
      return (count, outcomes, size)
    }
    #expect(outcomes == Array(repeating: .done, count: 2 * count))
    #expect(size > Self.limit)
    #expect(core.read { $0.taskCount } == 0)
  }

  // MARK: Compacting a full file

  @Test(arguments: [false, true])
  func `a full file accepts tasks again after it has drained`(isReopened: Bool) async throws {
    let first = makeCore()
    try await run {
      _ = try await fill(first, .large)
      try await cancelAll(first)
      if isReopened { try await first.close() }
    }
    #expect(generation == 1)
    #expect(storage.bytes.count > 3000)
    let core = isReopened ? makeCore() : first
    let outcomes = try await run { try await core.openAndInsert(.large(1000)) }
    #expect(outcomes == [.done])
    #expect(generation == 2)
    #expect(storage.bytes.count < 2000)
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 1)
  }

  @Test func `a file that exceeded its limit while draining is compacted automatically`()
    async throws
  {
    let core = makeCore()
    try await run {
      _ = try await fill(core)
      let leases = try await claimAll(core)
      _ = try await core.apply(
        leases.map { .succeed($0, at: .seconds(1), retains: false) },
        .durable
      )
    }
    #expect(generation == 2)
    #expect(storage.bytes.count < 1000)
  }

  @Test func `a full file of which less than a quarter is dead isn't compacted for each task`()
    async throws
  {
    let core = makeCore()
    let error = try await run {
      _ = try await fill(core)
      _ = try await core.apply(
        [.cancel(.unclaimed(.numbered(10)), at: .seconds(1), retains: false)],
        .durable
      )
      return await #expect(throws: JSONFileError.self) { try await core.insert(.make(1000)) }
    }
    #expect(error?.code == .fileFull)
    #expect(storage.calls.count { $0 == .create(.replacement) } == 1)
  }

  @Test func `a full file that is larger than estimated is compacted once, not for each task`()
    async throws
  {
    let core = makeCore(limit: 40_000)
    let leases = try await run {
      _ = try await core.openAndInsert(.make(1))
      let leases = try await claim(core, 1)
      // Each quotation mark needs two bytes in the file, because it is escaped.
      let quotes = [UInt8](repeating: UInt8(ascii: "\""), count: 19_400)
      _ = try await core.apply([.remember(leases[0], named: "text", value: quotes)], .durable)
      return leases
    }
    for _ in 1...10 {
      let error = try await run {
        await #expect(throws: JSONFileError.self) { try await core.insert(.large(2)) }
      }
      let size = try #require(error?.message.firstMatch(of: /would leave about (\d+)/)?.1)
      #expect(error?.code == .fileFull)
      #expect(abs((Int(size) ?? 0) - storage.bytes.count) < 1_000)
    }
    #expect(generation == 2)
    let outcomes = try await run {
      _ = try await core.apply([.succeed(leases[0], at: .seconds(1), retains: false)], .durable)
      return try await core.insert(.large(2))
    }
    #expect(outcomes == [.done])
    #expect(generation == 3)
  }

  @Test func `a file stays full until a compaction succeeds`() async throws {
    let core = makeCore()
    let errors = try await run { [storage] in
      _ = try await fill(core, .large)
      try await cancelAll(core)
      storage.fail(.create(.replacement), ENOSPC)
      let first = await #expect(throws: JSONFileError.self) { try await core.insert(.large(1)) }
      storage.fail(.append, ENOSPC)
      let second = await #expect(throws: JSONFileError.self) { try await core.insert(.large(1)) }
      return [first, second]
    }
    #expect(errors.map { $0?.code } == [.fileFull, .fileFull])
    for error in errors { #expect(error?.message.contains("No space left on device") == true) }
    let outcomes = try await run { try await core.insert(.large(1)) }
    #expect(outcomes == [.done])
  }

  @Test func `concurrent callers share the space that a compaction frees`()
    async throws
  {
    let core = makeCore()
    let added = try await run {
      _ = try await fill(core, .large)
      try await cancelAll(core)
      return try await withThrowingTaskGroup(of: Bool.self) { group in
        for number in 1...60 {
          group.addTask {
            do {
              _ = try await core.insert(.make(1000 + number))
              return true
            } catch let error as JSONFileError where error.code == .fileFull {
              return false
            }
          }
        }
        return try await group.reduce(0) { $0 + ($1 ? 1 : 0) }
      }
    }
    #expect((5..<60).contains(added))
    #expect(storage.bytes.count <= Self.limit)
    #expect(try JournalReader.read(storage.bytes).table.taskCount == added)
  }

  @Test func `changes submitted while the thread writes count toward the limit`() async throws {
    let (core, storage, executor) = (makeCore(), storage, executor)
    let log = Log<String>()
    @Sendable func insert(_ number: Int) async {
      do {
        _ = try await core.openAndInsert(.large(number))
        log.add("\(number) stored")
      } catch let error as JSONFileError {
        log.add("\(number) \(error.code == .fileFull ? "full" : "\(error)")")
      } catch {
        log.add("\(number) \(error)")
      }
    }
    try await executor.runToEnd { await insert(1) }
    let appends = Counter()
    storage.onCall { call in
      guard call == .append else { return }
      appends.add(1)
      guard appends.value == 1 else { return }
      Task(executorPreference: executor) { await insert(3) }
      executor.runTasks()
    }
    executor.onYield {
      guard appends.value == 1 else { return }
      Task(executorPreference: executor) { await insert(4) }
      executor.runTasks()
    }
    try await executor.runToEnd { await insert(2) }
    #expect(Set(log.entries) == ["1 stored", "2 stored", "3 stored", "4 full"])
    #expect(log.entries.count == 4)
    #expect(storage.bytes.count <= Self.limit)
  }

  @Test func `a caller that waits for space gets an error when the store is closed`() async throws {
    let core = makeCore()
    let error = try await run {
      _ = try await fill(core, .large)
      try await cancelAll(core)
      async let waiting = #expect(throws: JSONFileError.self) {
        try await core.insert(.large(1000))
      }
      async let closing: Void = core.close()
      try await closing
      return await waiting
    }
    #expect(error?.code == .closed)
    #expect(storage.bytes(of: .replacement) == nil)
  }

  @Test func `a caller that waits for space gets an error when the disk fails`() async throws {
    let core = makeCore()
    let error = try await run { [storage] in
      _ = try await fill(core, .large)
      try await cancelAll(core)
      storage.fail(.synchronizeFolder, EIO)
      return await #expect(throws: JSONFileError.self) { try await core.insert(.large(1000)) }
    }
    #expect(error?.code == .outcomeUnknown)
  }

  @Test func `a file larger than its limit opens, and accepts tasks after it has drained`()
    async throws
  {
    let unlimited = makeCore(limit: nil)
    try await run {
      for number in 1...60 { _ = try await unlimited.openAndInsert(.make(number)) }
      try await unlimited.close()
    }
    let core = makeCore()
    let error = try await run {
      await #expect(throws: JSONFileError.self) { try await core.openAndInsert(.make(1000)) }
    }
    #expect(error?.code == .fileFull)
    let outcomes = try await run {
      try await cancelAll(core)
      return try await core.openAndInsert(.make(1000))
    }
    #expect(outcomes == [.done])
    #expect(storage.bytes.count <= Self.limit)
  }
}
