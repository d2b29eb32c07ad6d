import Foundation
import Synchronization
import Testing

@testable import SteadfastQueue

@Suite struct JournalTests {
  private func insertion(ofTask number: Int) throws -> [JournalBody] {
    [try JournalBody(.change(.insert(.make(number), onDuplicate: .keep)))]
  }

  private func taskNumbers(in storage: MemoryStorage) throws -> [Int] {
    let contents = try JournalReader.read(storage.bytes)
    return contents.table.tasks(matching: TaskFilter(), after: nil, limit: .max)
      .map { Int($0.id.low) }
  }

  // MARK: Opening

  @Test func `a new file is created atomically and contains a header`() throws {
    let storage = MemoryStorage()
    _ = try Journal.open(storage)
    #expect(
      storage.calls == [
        .open(.journal), .open(.replacement), .create(.replacement), .append, .synchronize,
        .openFolder, .rename(.replacement, .journal), .synchronizeFolder,
      ]
    )
    #expect(try JournalReader.read(storage.bytes).nextSequence == 1)
  }

  @Test func `opening cuts off the torn end, rewrites unsynced lines, and flushes`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    try journal.synchronize()
    let synced = storage.bytes.count
    try journal.append([insertion(ofTask: 2)])
    let good = storage.bytes.count
    let torn = MemoryStorage(storage.bytes + Array(#"{"c":"0000"#.utf8))
    _ = try Journal.open(torn)
    #expect(
      torn.calls == [
        .open(.journal), .read, .open(.replacement), .truncate(to: good),
        .overwrite(at: synced), .synchronize, .synchronizeFolder,
      ]
    )
    #expect(torn.bytes == storage.bytes)
  }

  @Test(arguments: [
    MemoryStorage.Call.open(.journal), .read, .open(.replacement), .truncate(to: 0),
    .overwrite(at: 0), .synchronize, .synchronizeFolder,
  ])
  func `a failed opening closes the file, and the next opening succeeds`(
    call: MemoryStorage.Call
  ) throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    let contents = try JournalReader.read(storage.bytes)
    let torn = MemoryStorage(storage.bytes + [0x7B])
    let failing =
      switch call {
      case .truncate: MemoryStorage.Call.truncate(to: contents.goodSize)
      case .overwrite: MemoryStorage.Call.overwrite(at: contents.unsyncedOffset)
      default: call
      }
    torn.fail(failing, EIO)
    #expect(throws: (any Error).self) { try Journal.open(torn) }
    #expect(torn.calls.last == (call == .open(.journal) ? call : .close))
    _ = try Journal.open(torn)
    #expect(try taskNumbers(in: torn) == [1])
  }

  // MARK: Writing

  @Test func `short writes are continued`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    storage.state.withLock { $0.longestWrite = 7 }
    try journal.append([insertion(ofTask: 1), insertion(ofTask: 2)])
    #expect(try taskNumbers(in: storage) == [1, 2])
  }

  @Test func `a write of zero bytes fails, and isn't retried forever`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    storage.state.withLock { $0.longestWrite = 0 }
    #expect(throws: Journal.Failure.refused(.nothingWritten)) {
      try journal.append([insertion(ofTask: 1)])
    }
    storage.state.withLock { $0.longestWrite = .max }
    try journal.append([insertion(ofTask: 2)])
    #expect(try taskNumbers(in: storage) == [2])
  }

  @Test func `a failed write leaves no bytes behind, and the next write succeeds`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    storage.fail(.append, ENOSPC)
    #expect(throws: Journal.Failure.refused(SystemCallError("append", ENOSPC))) {
      try journal.append([insertion(ofTask: 2)])
    }
    #expect(try taskNumbers(in: storage) == [1])
    try journal.append([insertion(ofTask: 3)])
    try journal.synchronize()
    #expect(try taskNumbers(in: storage) == [1, 3])
  }

  @Test func `the remains of a failed write are removed durably before the call throws`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    let size = storage.bytes.count
    storage.fail(.append, ENOSPC)
    #expect(throws: Journal.Failure.self) { try journal.append([insertion(ofTask: 1)]) }
    #expect(storage.calls.suffix(3) == [.append, .truncate(to: size), .synchronize])

    storage.fail(.append, ENOSPC)
    storage.fail(.synchronize, EIO)
    #expect(throws: Journal.Failure.poisoned(SystemCallError("synchronize", EIO))) {
      try journal.append([insertion(ofTask: 1)])
    }
  }

  @Test(arguments: [
    MemoryStorage.Call.open(.replacement), .create(.replacement), .append, .synchronize,
    .openFolder, .rename(.replacement, .journal), .synchronizeFolder,
  ])
  func `if creating the file fails, the next opening creates it`(
    call: MemoryStorage.Call
  ) throws {
    let storage = MemoryStorage()
    storage.fail(call, EIO)
    #expect(throws: (any Error).self) { try Journal.open(storage) }
    #expect(storage.bytes(of: .replacement) == nil)
    _ = try Journal.open(storage)
    #expect(try JournalReader.read(storage.bytes).nextSequence == 1)
    #expect(storage.bytes(of: .replacement) == nil)
  }

  @Test func `a failed write that can't be undone poisons the journal`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    let size = storage.bytes.count
    storage.fail(.append, ENOSPC)
    storage.fail(.truncate(to: size), EIO)
    let poison = Journal.Failure.poisoned(SystemCallError("truncate(to: \(size))", EIO))
    #expect(throws: poison) { try journal.append([insertion(ofTask: 1)]) }
    #expect(throws: poison) { try journal.append([insertion(ofTask: 2)]) }
    #expect(throws: poison) { try journal.synchronize() }
  }

  @Test func `a failed flush is never retried`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    storage.fail(.synchronize, EIO)
    let poison = Journal.Failure.poisoned(SystemCallError("synchronize", EIO))
    #expect(throws: poison) { try journal.synchronize() }
    let calls = storage.calls
    #expect(throws: poison) { try journal.synchronize() }
    #expect(throws: poison) { try journal.append([insertion(ofTask: 2)]) }
    #expect(storage.calls == calls)
  }

  @Test func `closing flushes, seals, flushes again, and closes the file`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    try journal.close()
    #expect(storage.calls.suffix(5) == [.append, .synchronize, .append, .synchronize, .close])
    #expect(String(decoding: storage.bytes, as: UTF8.self).hasSuffix("\"k\":\"seal\"}\n"))
    #expect(try taskNumbers(in: storage) == [1])
  }

  @Test func `after a file is closed, damage to the line of an interruption is detected`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1), [JournalBody(attemptStartOf: .numbered(1))]])
    journal.abandon()
    var next = try Journal.open(storage).journal
    try next.close()
    let lines = storage.bytes.split(separator: 0x0A).map { String(decoding: $0, as: UTF8.self) }
    #expect(lines.suffix(2).map { $0.contains("\"k\":\"interruption\"") } == [true, false])
    #expect(lines.last?.contains("\"b\":\(lines.count - 1),") == true)
    // Damage before the seal is detected.
    var damaged = storage.bytes
    let interruption = damaged.dropLast().lastIndex(of: 0x0A) ?? 0
    damaged[interruption - 5] ^= 1
    #expect(throws: JournalProblem.self) { try JournalReader.read(damaged) }
  }

  @Test func `closing an unchanged file adds no second seal`() throws {
    let storage = MemoryStorage()
    var journal = try Journal.open(storage).journal
    try journal.append([insertion(ofTask: 1)])
    try journal.close()
    let sealed = storage.bytes
    for _ in 1...3 {
      var again = try Journal.open(storage).journal
      try again.close()
      #expect(storage.bytes == sealed)
    }
    var used = try Journal.open(storage).journal
    try used.append([insertion(ofTask: 2)])
    try used.close()
    #expect(try JournalReader.read(storage.bytes).isSealed)
    #expect(try taskNumbers(in: storage) == [1, 2])
  }
}
