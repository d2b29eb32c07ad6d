import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct JSONFileCoreTests {
  private let storage = MemoryStorage()
  private let core: JSONFileCore

  init() {
    let storage = storage
    core = JSONFileCore(URL(filePath: "/queue.jsonl")) { (nil, storage) }
  }

  private func claimTasks(limit: Int) async throws -> [ClaimedTask] {
    try await core.claim(ClaimRequest(limit: limit, names: ["Note": .max], now: .seconds(0))).tasks
  }

  private func insert(_ numbers: Int...) async throws {
    _ = try await core.apply(
      numbers.map { .insert(.make($0, key: "key \($0)"), onDuplicate: .keep) },
      .durable
    )
  }

  private func taskCount(matching filter: TaskFilter = TaskFilter()) -> Int {
    core.read { $0.count(matching: filter) }
  }

  @Test func `the next call retries a failed opening`() async throws {
    storage.fail(.open(.journal), EACCES)
    await #expect(throws: JSONFileError.self) { try await core.open() }
    try await core.open()
    try await insert(1)
    #expect(taskCount() == 1)
  }

  @Test func `a durable change is flushed before the call returns, but a claim is not`()
    async throws
  {
    try await core.open()
    try await insert(1)
    #expect(storage.calls.suffix(2) == [.append, .synchronize])
    _ = try await claimTasks(limit: 1)
    #expect(storage.calls.last == .append)
  }

  @Test func `an empty claim touches no file`() async throws {
    try await core.open()
    let before = storage.calls
    #expect(try await claimTasks(limit: 1).isEmpty)
    #expect(storage.calls == before)
  }

  @Test func `if the disk is full, neither the file nor memory changes`() async throws {
    try await core.open()
    try await insert(1)
    storage.fail(.append, ENOSPC)
    let error = await #expect(throws: JSONFileError.self) { try await insert(2, 3) }
    #expect(error?.code == .systemCall)
    #expect(error?.message.contains("No space left on device") == true)
    #expect(taskCount() == 1)
    try await insert(2)
    #expect(try await claimTasks(limit: 9).numbers == [1, 2])
  }

  @Test func `a claim that can't be written is undone`() async throws {
    try await core.open()
    try await insert(1, 2)
    storage.fail(.append, EIO)
    await #expect(throws: JSONFileError.self) { _ = try await claimTasks(limit: 2) }
    #expect(try await claimTasks(limit: 2).numbers == [1, 2])
  }

  @Test func `an end that can't be written leaves the task claimed`() async throws {
    try await core.open()
    try await insert(1)
    let lease = try await claimTasks(limit: 1)[0].lease
    storage.fail(.append, EIO)
    await #expect(throws: JSONFileError.self) {
      _ = try await core.apply([.succeed(lease, at: .seconds(1), retains: false)], .durable)
    }
    #expect(taskCount(matching: TaskFilter(states: [.running])) == 1)
    let outcome = try await core.apply([.succeed(lease, at: .seconds(1), retains: false)], .durable)
    #expect(outcome == [.done])
    #expect(taskCount() == 0)
  }

  @Test func `after a failed flush, every call reports that the outcome is unknown`() async throws {
    try await core.open()
    storage.fail(.synchronize, EIO)
    for _ in 0..<2 {
      let error = await #expect(throws: JSONFileError.self) { try await insert(1) }
      #expect(error?.code == .outcomeUnknown)
    }
    let error = await #expect(throws: JSONFileError.self) { try await core.open() }
    #expect(error?.code == .outcomeUnknown)
    #expect(storage.calls.last == .close)
    await #expect(throws: JSONFileError.self) { try await core.close() }
    try await core.close()
  }

  @Test func `a new store can use the file while a store whose flush failed still exists`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let path = folder.appending(path: "queue.jsonl").path
      let storage = storage
      let makeCore = {
        JSONFileCore(URL(filePath: path)) { (try FileLock.acquire(for: path), storage) }
      }
      let poisoned = makeCore()
      try await poisoned.open()
      storage.fail(.synchronize, EIO)
      await #expect(throws: JSONFileError.self) {
        _ = try await poisoned.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
      }
      let fresh = makeCore()
      try await fresh.open()
      _ = try await fresh.apply([.insert(.make(2), onDuplicate: .keep)], .durable)
      #expect(fresh.read { $0.record(of: .numbered(2)) } != nil)
      await #expect(throws: JSONFileError.self) { try await poisoned.open() }
    }
  }

  @Test func `a task that is too large is refused before anything is written`() async throws {
    try await core.open()
    let before = storage.calls
    let large = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload(Array(repeating: 0x31, count: 17 << 20), format: .json),
      createdDate: .seconds(0),
      availableDate: .seconds(0)
    )
    let error = await #expect(throws: JSONFileError.self) {
      _ = try await core.apply([.insert(large, onDuplicate: .keep)], .durable)
    }
    #expect(error?.code == .taskTooLarge)
    #expect(storage.calls == before)
  }

  @Test func `concurrent callers share flushes, and each caller gets its own result`() async throws
  {
    try await core.open()
    try await withThrowingTaskGroup { group in
      for number in 1...200 {
        group.addTask {
          let outcomes = try await core.apply(
            [.insert(.make(number, key: "key \(number / 2)"), onDuplicate: .keep)],
            .durable
          )
          return outcomes[0]
        }
      }
      var outcomes: [ChangeOutcome] = []
      for try await outcome in group { outcomes.append(outcome) }
      #expect(outcomes.count { $0 == .done } == 101)
      #expect(outcomes.count { $0 != .done } == 99)
    }
    let stored = try JournalReader.read(storage.bytes).table
    #expect(stored.count(matching: TaskFilter()) == 101)
  }

  @Test func `a batch whose end a crash has torn off is lost as a whole`() async throws {
    try await core.open()
    try await insert(1)
    let size = storage.bytes.count
    try await insert(2, 3, 4)
    for end in size..<storage.bytes.count {
      let (_, table) = try Journal.open(MemoryStorage(Array(storage.bytes[..<end])))
      #expect(table.count(matching: TaskFilter()) == 1, "cut at \(end)")
    }
  }

  @Test(arguments: [EINVAL, EPERM, EMLINK])
  func `a failed system call is not reported as an unsafe file`(number: Int32) async throws {
    storage.fail(.synchronizeFolder, number)
    let error = await #expect(throws: JSONFileError.self) { try await core.open() }
    #expect(error?.code == .systemCall)
  }

  @Test func `concurrent calls of close all return when the store is closed`()
    async throws
  {
    for _ in 1...200 {
      let storage = MemoryStorage()
      let core = JSONFileCore(URL(filePath: "/queue.jsonl")) { (nil, storage) }
      try await core.open()
      try await withThrowingTaskGroup { group in
        for _ in 1...3 {
          group.addTask {
            try await core.close()
            #expect(storage.calls.last == .close)
          }
        }
        try await group.waitForAll()
      }
      #expect(storage.calls.count { $0 == .close } == 1)
    }
  }

  @Test func `closing a store that was never opened touches nothing`() async throws {
    try await core.close()
    #expect(storage.calls.isEmpty)
    await #expect(throws: JSONFileError.self) { try await core.open() }
  }

  @Test func `closing again does nothing, and later calls report that the store is closed`()
    async throws
  {
    try await core.open()
    try await insert(1)
    try await core.close()
    try await core.close()
    #expect(storage.calls.count { $0 == .close } == 1)
    let error = await #expect(throws: JSONFileError.self) { try await insert(2) }
    #expect(error?.code == .closed)
  }
}
