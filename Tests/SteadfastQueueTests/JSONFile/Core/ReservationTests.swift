import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the zeros at the end of a file that reserve space for later lines.
@Suite struct ReservationTests {
  private static let space = 4_000
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore(
    _ compactionPolicy: CompactionPolicy = CompactionPolicy()
  ) -> JSONFileCore {
    JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(reservedSpace: Self.space),
      compactionPolicy: compactionPolicy,
      thread: { [executor] in executor }
    ) { [storage] in (nil, storage) }
  }

  private var lines: [UInt8] {
    storage.bytes.lastIndex { $0 != 0 }.map { Array(storage.bytes[...$0]) } ?? []
  }

  @Test func `lines replace zeros, and the store adds zeros when no zeros are left`() async throws {
    let core = makeCore()
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
    }
    let size = storage.bytes.count
    #expect(size == lines.count + Self.space)
    let before = storage.calls.count
    try await executor.runToEnd { try await core.insert(.make(2)) }
    #expect(storage.bytes.count == size)
    #expect(storage.calls.dropFirst(before).last == .synchronize)
    #expect(!storage.calls.dropFirst(before).contains(.append))
    var number = 2
    while storage.bytes.count == size {
      number += 1
      let next = number
      try await executor.runToEnd { try await core.insert(.make(next)) }
    }
    #expect(storage.bytes.count == lines.count + Self.space)
    #expect(try JournalReader.read(lines).table.taskCount == number)
    let report = try await executor.run { try await core.verify() }
    #expect(report.problems == [])
    #expect(report.tornByteCount == 0)
    try await executor.runToEnd { try await core.close() }
    #expect(storage.bytes == lines)
    #expect(try JournalReader.read(storage.bytes).isSealed)
  }

  @Test func `opening a file after a crash cuts off the zeros at its end`() async throws {
    let core = makeCore()
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
    }
    let (bytes, lines) = (storage.bytes, lines)
    let report = try JournalInspection(bytes).report
    #expect(report.isSound && report.tornByteCount == 0 && !report.wasClosed)
    #expect(report.byteCount == bytes.count)
    let (journal, table) = try Journal.open(storage)
    #expect(table.numbers == [1])
    #expect(journal.fileSize == journal.size)
    #expect(storage.bytes == lines)
  }

  @Test func `a file with zeros after its seal, as a crash leaves it, is sound but not closed`()
    throws
  {
    var text = try JournalText()
    try text.addTasks(1...2)
    try text.add(.seal)
    let inspection = try JournalInspection(text.bytes + [UInt8](repeating: 0, count: 5_000))
    #expect(inspection.report.isSound && inspection.report.tornByteCount == 0)
    #expect(!inspection.report.wasClosed)
  }

  @Test func `a torn line before zeros is cut off together with the zeros`() throws {
    var text = try JournalText()
    try text.addTasks(1...2)
    let good = text.bytes.count
    try text.addTasks(3...3)
    let torn = text.bytes.prefix(good + 40) + [UInt8](repeating: 0, count: 3_000)
    let storage = MemoryStorage(Array(torn))
    #expect(try JournalInspection(Array(torn)).report.tornByteCount == 40)
    #expect(try Journal.open(storage).table.numbers == [1, 2])
    #expect(storage.bytes.count == good)
  }

  @Test(arguments: [0, 63, 64, 65, 100_000])
  func `reading a file ends before the zeros at its end`(count: Int)
    throws
  {
    let bytes = Array("line\n".utf8)
    let source = JournalSource(bytes + [UInt8](repeating: 0, count: count))
    #expect(try source.withoutReservation().readAll() == bytes)
    // The library never writes a file of only zeros, so such zeros aren't reserved space.
    let zeros = JournalSource([UInt8](repeating: 0, count: count))
    #expect(try zeros.withoutReservation().count == count)
  }

  @Test func `more zeros than a store reserves don't count as a reservation`() throws {
    let size = JournalSource.maxReservation + 2
    let source = JournalSource(count: size) { range in
      range.contains(0)
        ? [1] + [UInt8](repeating: 0, count: range.count - 1)
        : [UInt8](repeating: 0, count: range.count)
    }
    #expect(try source.withoutReservation().count == size)
  }

  @Test
  func `a file with a second hard link and zeros from a crash is compacted without the zeros`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      var text = try JournalText()
      try text.addTasks(1...2)
      try Data(text.bytes + [UInt8](repeating: 0, count: 5_000)).write(to: file)
      try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
      try FileManager.default.linkItem(at: file, to: folder.appending(path: "backup.jsonl"))
      let store = JSONFileStore(at: file)
      let statistics = try await store.statistics()
      #expect(statistics.taskCount == 2)
      #expect(statistics.lastCompaction?.bytesBefore == text.bytes.count)
      try await store.close()
    }
  }

  @Test func `a copy made while lines replaced zeros is refused, not misread`()
    async throws
  {
    let core = makeCore()
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
    }
    let (before, lineCount) = (storage.bytes, lines.count)
    let cut = lineCount + 500
    var number = 1
    while lines.count < cut + 1_000 {
      number += 1
      let next = number
      try await executor.runToEnd { try await core.insert(.make(next)) }
    }
    // A program may copy the first part of the file before a write, and the rest afterwards.
    let copy = Array(before.prefix(cut) + storage.bytes.dropFirst(cut))
    #expect {
      try Journal.open(MemoryStorage(copy))
    } throws: { error in
      guard case .damaged(3, lineCount, _)? = error as? JournalProblem else { return false }
      return true
    }
    #expect(try !JournalInspection(copy).report.isSound)
  }

  @Test func `a disk without space for zeros still stores lines`() async throws {
    let core = makeCore()
    try await executor.runToEnd { try await core.open() }
    storage.fail(.append, ENOSPC, after: 1)
    try await executor.runToEnd { try await core.insert(.make(1)) }
    #expect(storage.bytes == lines)
    #expect(try JournalReader.read(storage.bytes).table.numbers == [1])
    let before = storage.calls.count
    try await executor.runToEnd { try await core.insert(.make(2)) }
    // The store doesn't try to reserve space again with each write.
    #expect(storage.calls.dropFirst(before) == [.append, .synchronize])
    #expect(storage.bytes == lines)
  }

  @Test(arguments: [Durability.durable, .relaxed])
  func `a failed reservation that can't be undone ends the use of the file`(
    durability: Durability
  ) async throws {
    let core = makeCore()
    try await executor.runToEnd { try await core.open() }
    let size = storage.bytes.count
    storage.fail(.append, ENOSPC, after: 1)
    storage.onCall { [storage] call in
      if case .truncate(let size) = call { storage.fail(.truncate(to: size), EIO) }
    }
    let error = await #expect(throws: JSONFileError.self) {
      try await executor.run {
        _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], durability)
      }
    }
    #expect(error?.code == .outcomeUnknown)
    #expect(storage.bytes.count > size)
  }

  @Test func `a failed write into zeros removes its bytes and the zeros`() async throws {
    let core = makeCore()
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
    }
    let lines = lines
    storage.fail(.overwrite(at: lines.count), ENOSPC)
    let error = await #expect(throws: JSONFileError.self) {
      try await executor.run { try await core.insert(.make(2)) }
    }
    #expect(error?.code == .systemCall)
    #expect(storage.bytes == lines)
    try await executor.runToEnd { try await core.insert(.make(3)) }
    #expect(try JournalReader.read(self.lines).table.numbers == [1, 3])
    #expect(storage.bytes.count == self.lines.count + Self.space)
  }

  @Test func `a caller that writes its own claim reserves no space`() async throws {
    let core = makeCore()
    try await executor.runToEnd {
      try await core.open()
      try await core.insert(.make(1))
      try await core.close()
    }
    let again = makeCore()
    try await executor.runToEnd {
      try await again.open()
      _ = try await again.claim(ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0)))
    }
    #expect(storage.bytes == lines)
    try await executor.runToEnd { try await again.insert(.make(2)) }
    #expect(storage.bytes.count == lines.count + Self.space)
  }

  @Test func `a file that was compacted reserves space again`() async throws {
    let core = makeCore(CompactionPolicy(minimumSize: 6_000, spareSize: 0))
    try await executor.runToEnd {
      try await core.open()
      for number in 1...20 { try await core.insertAndCancel(number) }
    }
    #expect(storage.calls.contains(.rename(.replacement, .journal)))
    #expect(storage.bytes.count > lines.count)
    #expect(storage.bytes.count <= lines.count + Self.space)
    let report = try await executor.run { try await core.verify() }
    #expect(report.problems == [])
  }

  @Test func `the store detects that another program wrote after the zeros or cut them off`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(reservedSpace: 1 << 16)
      let store = JSONFileStore(at: file, options: options)
      let insertion = TaskChange.insert(.make(1), onDuplicate: .keep)
      _ = try await store.apply([insertion], durability: .durable)
      let size = try Data(contentsOf: file).count
      for change in [-1, 1] {
        let handle = try FileHandle(forUpdating: file)
        try handle.truncate(atOffset: UInt64(size + change))
        let error = await #expect(throws: JSONFileError.self) {
          try await store.apply([.pause(.unclaimed(.numbered(1)))], durability: .durable)
        }
        #expect(error?.code == .changed)
        #expect(try await store.verify().problemCount == 1)
        try handle.truncate(atOffset: UInt64(size))
        try handle.close()
      }
      _ = try await store.apply([.pause(.unclaimed(.numbered(1)))], durability: .durable)
      #expect(try await store.statistics().byteCount < 2_000)
      try await store.close()
      #expect(try Data(contentsOf: file).last == 0x0A)
    }
  }

  @Test(arguments: [0, -1, 1 << 26 + 1]) func `a size that can't be reserved is refused`(
    size: Int
  ) async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(
        at: folder.appending(path: "queue.jsonl"),
        options: JSONFileStore.Options(reservedSpace: size)
      )
      let error = await #expect(throws: JSONFileError.self) { try await store.open() }
      #expect(error?.code == .invalidOptions)
      #expect(error?.message.contains("reservedSpace of \(size) bytes; give 1 to") == true)
    }
  }
}
