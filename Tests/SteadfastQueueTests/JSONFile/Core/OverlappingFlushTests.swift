import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct OverlappingFlushTests: FlushSuite {
  let setting = FlushSetting()

  /// The sequence number of each line, and of the first line that the line doesn't mark as durable.
  private var lines: [(sequence: UInt64, firstUnsynced: UInt64)] {
    var lines: [(UInt64, UInt64)] = []
    var start = 0
    let bytes = storage.bytes
    while let end = bytes[start...].firstIndex(of: 0x0A) {
      if let line = JournalLine(bytes, start..<end) {
        lines.append((line.sequence, line.firstUnsynced))
      }
      start = end + 1
    }
    return lines
  }

  @Test func `a claim returns during a flush`() async throws {
    let (core, log) = (core, log)
    try await executor.runToEnd {
      try await core.open()
      await insert(1)
    }
    duringFlushes {
      let request = ClaimRequest(limit: 9, names: ["Note": .max], now: .seconds(0))
      log.add("claimed \(try await core.claim(request).tasks.numbers)")
    }
    try await executor.runToEnd { await insert(2) }
    #expect(log.entries == ["1 stored", "claimed [1]", "flushed", "2 stored"])
  }

  @Test func `changes made during a flush are written together after the flush`()
    async throws
  {
    let core = core
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      async let second: Void = insert(2)
      async let third: Void = insert(3)
      _ = await (second, third)
    }
    let before = storage.calls.count
    try await executor.runToEnd { await insert(1) }
    #expect(Set(log.entries.prefix(2)) == ["flushed", "1 stored"])
    #expect(Set(log.entries.dropFirst(2)) == ["2 stored", "3 stored"])
    #expect(storage.calls.dropFirst(before) == [.append, .synchronize, .append, .synchronize])
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `changes that are written during a flush are stored by the flush after it`()
    async throws
  {
    let core = core
    try await executor.runToEnd {
      try await core.open()
      await insert(9)
    }
    executor.refuseGuests()
    duringFlushes { await insertBesideClaim(2) }
    let before = storage.calls.count
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["9 stored", "claimed [9]", "flushed", "1 stored", "2 stored"])
    #expect(storage.calls.dropFirst(before) == [.append, .synchronize, .append, .synchronize])
  }

  @Test func `a caller that claims writes the line of its claim, but not the pending changes`()
    async throws
  {
    let (core, executor) = (core, executor)
    try await executor.runToEnd {
      try await core.open()
      await insert(9)
    }
    let isByCaller = Log<Bool>()
    storage.onCall { call in if call == .append { isByCaller.add(executor.isGuest) } }
    duringFlushes { await insertBesideClaim(2) }
    let before = storage.calls.count
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["9 stored", "claimed [9]", "flushed", "1 stored", "2 stored"])
    #expect(
      storage.calls.dropFirst(before) == [.append, .synchronize, .append, .append, .synchronize]
    )
    #expect(lines.map(\.sequence) == Array(0...4))
    #expect(isByCaller.entries == [false, true, false])
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `the thread writes a claim if a file size limit may end the process`() async throws {
    let (core, executor, storage) = (core, executor, storage)
    try await executor.runToEnd {
      try await core.open()
      await insert(1)
    }
    storage.limitSizes()
    let isByCaller = Log<Bool>()
    storage.onCall { call in if call == .append { isByCaller.add(executor.isGuest) } }
    try await executor.runToEnd {
      _ = try await core.claim(ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0)))
    }
    #expect(isByCaller.entries == [false])
  }

  @Test
  func `the next flush stores the changes made during a flush, both written and pending ones`()
    async throws
  {
    let core = core
    try await executor.runToEnd {
      try await core.open()
      await insert(9)
    }
    executor.refuseGuests()
    duringFlushes {
      async let second: Void = insert(2)
      // The claim causes the pending insertion to be written, too.
      _ = try await core.claim(ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0)))
      await insert(3)
      await second
    }
    let before = storage.calls.count
    try await executor.runToEnd { await insert(1) }
    #expect(
      storage.calls.dropFirst(before)
        == [.append, .synchronize, .append, .append, .synchronize]
    )
    #expect(Set(log.entries.suffix(2)) == ["2 stored", "3 stored"])
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `no line marks lines that were written during the last flush as durable`()
    async throws
  {
    let core = core
    try await executor.runToEnd {
      try await core.open()
      await insert(8)
      await insert(9)
    }
    executor.refuseGuests()
    duringFlushes {
      await insertBesideClaim(2)
    } _: {
      await insertBesideClaim(3)
    }
    try await executor.runToEnd { await insert(1) }
    #expect(
      log.entries == [
        "8 stored", "9 stored", "claimed [8]", "flushed", "1 stored", "claimed [9]", "flushed",
        "2 stored", "3 stored",
      ]
    )
    #expect(lines.map(\.sequence) == Array(0...7))
    #expect(lines.map(\.firstUnsynced) == [0, 1, 2, 3, 3, 3, 4, 4])
  }

  @Test
  func `a relaxed change returns only after the changes that were written before it`()
    async throws
  {
    let core = core
    try await executor.runToEnd { try await core.open() }
    duringFlushes { await insert(2, .relaxed) }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["flushed", "1 stored", "2 stored"])
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `a compaction doesn't start during a flush`() async throws {
    let storage = storage
    let policy = CompactionPolicy(minimumSize: 6_000)
    let core = JSONFileCore(storage, executor, compactionPolicy: policy)
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
      var number = 10
      while storage.bytes.count < 5_500 {
        number += 1
        try await core.insertAndCancel(number)
      }
    }
    let before = storage.calls.count
    executor.refuseGuests()
    // After the claim is written during the flush, a compaction is due.
    duringFlushes {
      _ = try await core.claim(ClaimRequest(limit: 1, names: ["Note": .max], now: .seconds(0)))
    }
    let payload = Array(#""\#(String(repeating: "x", count: 1_000))""#.utf8)
    try await executor.runToEnd {
      try await core.insert(.make(2).replacing(payload: StoredPayload(payload, format: .json)))
    }
    #expect(storage.calls.dropFirst(before).contains(.rename(.replacement, .journal)))
    #expect(core.read { $0.taskCount } == 2)
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
  }

  @Test func `closing a store during a flush waits for the flush`() async throws {
    let (core, log) = (core, log)
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      try await core.close()
      log.add("closed")
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["flushed", "1 stored", "closed"])
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 1)
  }

  @Test
  func `a file is closed by a job with exclusive access, even if a write runs before the closing`()
    async throws
  {
    let (core, executor, log) = (core, executor, log)
    try await executor.runToEnd { try await core.open() }
    let outOfTurn = Log<MemoryStorage.Call>()
    storage.onCall { call in
      if call != .synchronize, !executor.hasTurn { outOfTurn.add(call) }
    }
    // At the end of the flush, another job seems to have the turn.
    executor.refuseTurns()
    duringFlushes {
      async let second: Void = insert(2)
      async let end: Void = core.close()
      _ = try await (second, end)
      log.add("closed")
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["flushed", "1 stored", "2 stored", "closed"])
    #expect(outOfTurn.entries == [])
    #expect(try JournalReader.read(storage.bytes).isSealed)
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 2)
  }

  @Test func `all jobs that wait for a flush run when the flush ends`() async throws {
    let (core, log) = (core, log)
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      async let report = core.verify()
      async let second = core.verify()
      _ = try await (report, second)
      log.add("verified twice")
      try await core.close()
      log.add("closed")
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["flushed", "1 stored", "verified twice", "closed"])
  }

  @Test func `a verification waits until nothing is being flushed`() async throws {
    let (core, log) = (core, log)
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      async let report = core.verify()
      async let second: Void = insert(2)
      log.add("\(try await report.problems.map(\.reason))")
      await second
    }
    try await executor.runToEnd { await insert(1) }
    #expect(log.entries == ["flushed", "1 stored", "[]", "2 stored"])
  }
}
