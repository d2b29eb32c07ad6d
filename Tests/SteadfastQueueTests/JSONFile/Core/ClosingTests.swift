import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Closes stores while they open, compact or flush their files.
@Suite struct ClosingTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }
  private let log = Log<String>()

  @Test func `a store that is closed while it opens refuses changes`() async throws {
    let (core, executor, log) = (JSONFileCore(storage, executor), executor, log)
    storage.onCall { call in
      guard call == .open(.journal) else { return }
      Task(executorPreference: executor) {
        try await core.close()
        log.add("closed")
      }
      executor.runTasks()
    }
    try await executor.runToEnd {
      try await core.open()
      do {
        try await core.insert(.make(1))
        log.add("stored")
      } catch let error as JSONFileError {
        log.add(error.code == .closed ? "refused" : "\(error)")
      }
    }
    #expect(log.entries == ["refused", "closed"])
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 0)
  }

  @Test func `a store that is closed during a compaction leaves no second file`()
    async throws
  {
    let policy = CompactionPolicy(minimumSize: 4_000, stepTasks: 1)
    let core = JSONFileCore(storage, executor, compactionPolicy: policy)
    let storage = storage
    let isCompacting = Counter()
    // The calls are counted after the opening, because creating the file makes the same calls.
    try await executor.runToEnd { try await core.open() }
    let before = storage.calls.count
    storage.onCall { if $0 == .create(.replacement) { isCompacting.add(1) } }
    try await executor.runToEnd {
      for number in 1...30 { try await core.insert(.make(number)) }
      var number = 100
      while isCompacting.value == 0 {
        number += 1
        try await core.insertAndCancel(number)
      }
      #expect(storage.bytes(of: .replacement) != nil)
      try await core.close()
    }
    #expect(storage.bytes(of: .replacement) == nil)
    #expect(!storage.calls.dropFirst(before).contains(.rename(.replacement, .journal)))
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 30)
  }

  @Test(arguments: [JSONFileStore.Flushing.leftToSystem, .atMostEvery(.seconds(60))])
  func `closing flushes a file that another program has lengthened`(
    flushing: JSONFileStore.Flushing
  ) async throws {
    let (storage, executor) = (storage, executor)
    let moved = MovedStorage(storage)
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      flushing: flushing,
      thread: { executor }
    ) { (nil, moved) }
    try await executor.run {
      try await core.open()
      try await core.insert(.make(1))
    }
    let before = storage.calls.count
    moved.move(to: .atItsPath(size: storage.bytes.count + 1))
    let error = await #expect(throws: JSONFileError.self) {
      try await executor.run { try await core.close() }
    }
    #expect(storage.calls.dropFirst(before) == [.synchronize, .close])
    #expect(error?.code == .changed)
    #expect(error?.message.contains("The store is closed, and did not change the file") == true)
  }

  @Test func `closing a store whose file was moved reports where its tasks are`()
    async throws
  {
    let (storage, executor) = (storage, executor)
    let moved = MovedStorage(storage)
    let core = JSONFileCore(URL(filePath: "/queue.jsonl"), thread: { executor }) { (nil, moved) }
    try await executor.run { try await core.open() }
    moved.move(to: .notAtItsPath)
    let error = await #expect(throws: JSONFileError.self) {
      try await executor.run { try await core.close() }
    }
    #expect(error?.code == .displaced)
    #expect(error?.message.contains("its tasks are in the original file") == true)
  }

  @Test
  func `a call in a forked child process is refused, and doesn't wait for a thread`() async throws {
    let core = JSONFileCore(storage, executor)
    try await executor.runToEnd { try await core.open() }
    let count = core.forkCount.load(ordering: .relaxed)
    core.forkCount.store(count + 1, ordering: .relaxed)
    let calls: [@Sendable () async throws -> Void] = [
      { try await core.open() }, { try await core.close() },
    ]
    for call in calls {
      let error = await #expect(throws: JSONFileError.self) { try await call() }
      #expect(error?.code == .inUse)
    }
    core.forkCount.store(count, ordering: .relaxed)
    try await executor.runToEnd { try await core.close() }
  }
}

/// A storage whose journal another program has moved or changed.
private final class MovedStorage: JournalStorage {
  private let storage: MemoryStorage
  private let place = Mutex(JournalLocation.atItsPath(size: nil))

  init(_ storage: MemoryStorage) { self.storage = storage }

  func move(to new: JournalLocation) { place.withLock { $0 = new } }

  func location(of name: JournalFileName) -> JournalLocation { place.withLock { $0 } }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    try storage.open(name)
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    try storage.create(name)
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    try storage.rename(name, to: other)
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) { try storage.remove(name) }

  func openFolder() throws(SystemCallError) { try storage.openFolder() }

  func synchronizeFolder() throws(SystemCallError) { try storage.synchronizeFolder() }
}
