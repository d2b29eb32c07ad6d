import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests files that a compaction has replaced while they are still being flushed or closed.
@Suite struct ReplacedFileTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }
  private let log = Log<String>()

  @Test func `a flush of a replaced file does nothing`() throws {
    var (journal, table) = try Journal.open(storage)
    try journal.append([[JournalBody(.change(.insert(.make(1), onDuplicate: .keep)))]])
    table.insert(.make(1))
    let flush = journal.beginFlush()
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try compaction.finish(journal, at: .seconds(0))
    journal.abandon()
    try flush.perform()
  }

  @Test func `a flush doesn't wait for the closing of a replaced file`() throws {
    let file = SlowlyClosedFile()
    let flushed = SyncedFile(file)
    let flush = Mutex<Result<Void, any Error>?>(nil)
    file.onClosing { flush.withLock { $0 = Result { try flushed.synchronize() } } }
    flushed.close()
    let result = flush.withLock { $0 }
    try #require(result).get()
  }

  @Test func `a change is stored during the closing of a replaced file`()
    async throws
  {
    let (executor, storage, log) = (executor, storage, log)
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      compactionPolicy: CompactionPolicy(minimumSize: 0, spareSize: 0),
      thread: { executor }
    ) { (nil, storage) }
    executor.onYield {
      guard storage.calls.last == .close, !log.entries.contains("closing") else { return }
      log.add("closing")
      Task(executorPreference: executor) {
        _ = try await core.apply([.insert(.make(1000), onDuplicate: .keep)], .durable)
        log.add("stored")
      }
      executor.runAll()
      log.add("closed")
    }
    try await executor.runToEnd {
      try await core.open()
      for number in 1...20 {
        _ = try await core.apply([.insert(.make(number), onDuplicate: .keep)], .relaxed)
      }
      let ends = (1...20).map {
        TaskChange.cancel(.unclaimed(.numbered($0)), at: .seconds(1), retains: false)
      }
      _ = try await core.apply(ends, .durable)
    }
    #expect(log.entries == ["closing", "stored", "closed"])
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 1)
  }
}

/// A file that calls a closure while it is being closed.
private final class SlowlyClosedFile: JournalFile {
  private let closing = Mutex<@Sendable () -> Void>({})

  func onClosing(_ body: @escaping @Sendable () -> Void) { closing.withLock { $0 = body } }

  func size() -> Int { 0 }
  func read(_ count: Int, at offset: Int) -> [UInt8] { [] }
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) -> Int { bytes.count }
  func truncate(to size: Int) {}
  func synchronize() {}
  func close() { closing.withLock { $0 }() }
}
