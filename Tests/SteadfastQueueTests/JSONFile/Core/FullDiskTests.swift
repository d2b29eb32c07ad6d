import Foundation
import Testing

@testable import SteadfastQueue

/// Opens, reads and closes files on a full disk.
@Suite struct FullDiskTests {
  private func makeCore(_ storage: MemoryStorage, limit: Int? = nil) -> JSONFileCore {
    JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: limit)
    ) { (nil, storage) }
  }

  /// The bytes of a file whose process crashed during an attempt of task 1.
  private func interruptedFile() throws -> [UInt8] {
    var text = try JournalText()
    try text.addTasks(1...2)
    try text.add(.begin(.numbered(1)))
    return text.bytes
  }

  private func interruptionCount(in bytes: [UInt8]) throws -> Int? {
    try JournalReader.read(bytes).table.record(of: .numbered(1))?.interruptionCount
  }

  @Test func `a full disk doesn't prevent opening, and interruptions are stored later`()
    async throws
  {
    let storage = MemoryStorage(try interruptedFile())
    let core = makeCore(storage)
    storage.fail(.append, ENOSPC)
    try await core.open()
    #expect(core.read { $0.record(of: .numbered(1))?.interruptionCount } == 1)
    #expect(try await core.verify().problems == [])
    let insertion = TaskChange.insert(.make(3), onDuplicate: .keep)
    let error = await #expect(throws: JSONFileError.self) {
      try await core.apply([insertion], .durable)
    }
    #expect(error?.code == .systemCall)
    #expect(try interruptionCount(in: storage.bytes) == 1)
    // Without the line of the interruption, task 1 would be running, and couldn't be paused.
    _ = try await core.apply([insertion, .pause(.unclaimed(.numbered(1)))], .durable)
    #expect(try await core.verify().problems == [])
    try await core.close()
    let table = try JournalReader.read(storage.bytes).table
    #expect(table.numbers == [1, 2, 3])
    #expect(table.record(of: .numbered(1))?.state == .paused)
    #expect(table.record(of: .numbered(1))?.interruptionCount == 1)
  }

  @Test func `the line about interrupted tasks counts toward the file's size limit`() async throws {
    let bytes = try interruptedFile()
    for limit in bytes.count..<bytes.count + 800 {
      let storage = MemoryStorage(bytes)
      let core = makeCore(storage, limit: limit)
      try await core.open()
      _ = try? await core.apply([.insert(.make(3), onDuplicate: .keep)], .durable)
      #expect(storage.bytes.count <= limit)
    }
  }

  @Test func `interrupted tasks count one interruption, however often the file is opened`()
    async throws
  {
    let storage = MemoryStorage(try interruptedFile())
    for _ in 1...3 {
      let core = makeCore(storage)
      try await core.open()
      #expect(core.read { $0.record(of: .numbered(1))?.interruptionCount } == 1)
      try await core.close()
    }
    #expect(try interruptionCount(in: storage.bytes) == 1)
  }

  @Test func `closing on a full disk reports that everything but the seal is stored`() async throws
  {
    let storage = MemoryStorage()
    let core = makeCore(storage)
    try await core.open()
    _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
    storage.fail(.append, ENOSPC)
    let error = await #expect(throws: JSONFileError.self) { try await core.close() }
    #expect(error?.code == .systemCall)
    #expect(error?.message.contains("The call stored nothing") == false)
    #expect(error?.message.contains("All acknowledged changes are stored") == true)
    #expect(try JournalReader.read(storage.bytes).table.numbers == [1])
  }
}
