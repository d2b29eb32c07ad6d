import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests what happens to other changes and calls when a flush or a write fails.
@Suite struct FailedFlushTests: FlushSuite {
  let setting = FlushSetting()

  /// Stores task 1, inserts task 2 with a flush that fails, and makes a call during that flush.
  private func failFlush(beside call: @escaping @Sendable () async throws -> Void) async throws {
    let (core, storage) = (core, storage)
    try await executor.runToEnd {
      try await core.open()
      await insert(1)
      storage.fail(.synchronize, EIO)
    }
    duringFlushes(call)
    try await executor.runToEnd { await insert(2) }
  }

  @Test func `a failed flush reports an unknown outcome to every waiting caller`() async throws {
    try await failFlush { await insert(3) }
    #expect(log.entries.first == "1 stored")
    #expect(Set(log.entries.dropFirst()) == ["flushed", "2 unknown", "3 unknown"])
    #expect(core.read { $0.taskCount } == 1)
    #expect(storage.calls.last == .close)
  }

  @Test func `callers whose changes were written during a failing flush get the flush's error too`()
    async throws
  {
    try await failFlush { await insertBesideClaim(3) }
    #expect(log.entries.first == "1 stored")
    #expect(log.entries.count == 5)
    #expect(
      Set(log.entries.dropFirst()) == ["flushed", "2 unknown", "3 unknown", "claimed nothing"]
    )
  }

  @Test
  func `a failed flush fails all written changes, and a job with exclusive access closes the file`()
    async throws
  {
    let (core, storage, executor, log) = (core, storage, executor, log)
    try await executor.runToEnd {
      try await core.open()
      await insert(1)
      storage.fail(.synchronize, EIO)
    }
    let flushes = Counter()
    storage.onCall { call in
      if call == .close, !executor.hasTurn { log.add("closed beside other work") }
      guard call == .synchronize else { return }
      flushes.add(1)
      guard flushes.value == 1 else { return }
      Task(executorPreference: executor) { await insertBesideClaim(3) }
      executor.runAll()
      log.add("flushed")
    }
    try await executor.runToEnd { await insert(2) }
    #expect(log.entries.first == "1 stored")
    #expect(log.entries.count == 5)
    #expect(Set(log.entries) == ["1 stored", "claimed [1]", "flushed", "2 unknown", "3 unknown"])
  }

  @Test func `if several changes of a task can't be written, the last change is undone first`()
    async throws
  {
    let (core, storage, log) = (core, storage, log)
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      storage.fail(.append, ENOSPC)
      async let insertion: Void = insert(2)
      async let cancellation = core.apply(
        [.cancel(.unclaimed(.numbered(2)), at: .seconds(1), retains: true)],
        .durable
      )
      await insertion
      do { log.add("cancelled \(try await cancellation)") } catch { log.add("2 not cancelled") }
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries.count == 4)
    #expect(Set(log.entries) == ["flushed", "1 stored", "2 refused", "2 not cancelled"])
    #expect(core.read { $0.taskCount } == 1)
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `a write that fails during a flush undoes only its own changes`() async throws {
    let (core, storage) = (core, storage)
    try await executor.runToEnd {
      try await core.open()
      await insert(9)
    }
    executor.refuseGuests()
    duringFlushes {
      storage.fail(.append, ENOSPC)
      await insertBesideClaim(2)
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries.first == "9 stored")
    #expect(Set(log.entries.dropFirst().prefix(2)) == ["2 refused", "claimed nothing"])
    #expect(log.entries.dropFirst(3) == ["flushed", "1 stored"])
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `a verification and a closing that wait for a flush end when the flush fails`()
    async throws
  {
    let (core, log) = (core, log)
    try await failFlush {
      async let report = core.verify()
      async let end: Void = core.close()
      do { log.add("\(try await report.problems)") } catch { log.add("not verified") }
      do { try await end } catch { log.add("not closed") }
      log.add("over")
    }
    #expect(log.entries.contains("2 unknown"))
    #expect(log.entries.contains("not verified"))
    #expect(log.entries.contains("over"))
  }
}
