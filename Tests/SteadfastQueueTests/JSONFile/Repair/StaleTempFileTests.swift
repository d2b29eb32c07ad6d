import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests what happens if a file exists at the temporary path, where a compaction writes.
@Suite struct StaleTempFileTests {
  private let storage: MemoryStorage
  private let journal: [UInt8]

  init() throws {
    var text = try JournalText(generation: 3)
    try text.addTasks(1...40)
    try text.add(.seal)
    journal = text.bytes
    storage = MemoryStorage(journal)
  }

  private func open() throws -> TaskTable { try Journal.open(storage).table }

  private var stranger: [UInt8]? { storage.bytes(of: .otherProgramsFile(1)) }

  private static func compactedFile(generation: Int) throws -> [UInt8] {
    var text = try JournalText(generation: generation)
    try text.addTasks(50...60)
    return text.bytes
  }

  @Test func `an unfinished file that a crash has left at the temporary path is removed`() throws {
    let compaction = try Self.compactedFile(generation: 4)
    let header = compaction.prefix { $0 != 0x0A }.count
    let leftovers: [[UInt8]] = [
      [], Array(compaction[..<3]), Array(compaction[..<header]), Array(compaction[...header]),
      compaction, Array(compaction.dropLast(20)), Array(journal[..<2000]), journal,
      Array(repeating: 0, count: 4096), Array(journal[..<1500]) + Array(repeating: 0, count: 500),
    ]
    for leftover in leftovers {
      storage.put(leftover, as: .replacement)
      #expect(try open().taskCount == 40)
      #expect(storage.bytes(of: .replacement) == nil)
      #expect(stranger == nil)
    }
  }

  @Test func `another program's file at the temporary path is renamed, not lost`()
    throws
  {
    var other = try JournalText(generation: 3)
    try other.addTasks(101...140)
    let strangers: [[UInt8]] = [
      Array("milk\neggs\n".utf8), other.bytes, try Self.compactedFile(generation: 5),
      try Self.compactedFile(generation: 1),
      Array(other.bytes[..<300]),
    ]
    for (index, bytes) in strangers.enumerated() {
      storage.put(bytes, as: .replacement)
      #expect(try open().taskCount == 40)
      #expect(storage.bytes(of: .replacement) == nil)
      #expect(storage.bytes(of: .otherProgramsFile(index + 1)) == bytes)
    }
    #expect(storage.bytes == journal)
  }

  @Test func `a queue's own file that was moved to the temporary path is renamed`() throws {
    // A compaction also leaves a file of the next generation.
    var text = try JournalText(generation: 4)
    try text.addTasks(50...60)
    var sealed = text
    try sealed.add(.seal)
    try text.add(.compacted(at: .seconds(1), bytesBefore: journal.count))
    let leftover = text.bytes
    try text.addTasks(61...61)
    for (index, bytes) in [sealed.bytes, text.bytes].enumerated() {
      storage.put(bytes, as: .replacement)
      #expect(try open().taskCount == 40)
      #expect(storage.bytes(of: .otherProgramsFile(index + 1)) == bytes)
    }
    storage.put(leftover, as: .replacement)
    #expect(try open().taskCount == 40)
    #expect(storage.bytes(of: .otherProgramsFile(3)) == nil)
    #expect(storage.bytes(of: .replacement) == nil)
  }

  @Test
  func `creating a queue's file doesn't replace another program's file at the temporary path`()
    throws
  {
    for bytes in [try Self.compactedFile(generation: 1), Array("milk\n".utf8)] {
      let storage = MemoryStorage()
      storage.put(bytes, as: .replacement)
      #expect(try Journal.open(storage).table.taskCount == 0)
      #expect(storage.bytes(of: .otherProgramsFile(1)) == bytes)
    }
    let storage = MemoryStorage()
    storage.put(try JournalText().bytes, as: .replacement)
    _ = try Journal.open(storage)
    #expect(storage.bytes(of: .otherProgramsFile(1)) == nil)
  }

  @Test func `a copy of a torn end that a crash has cut short is removed`() throws {
    var text = try JournalText(generation: 3)
    try text.addTasks(1...5)
    let sound = text.bytes.count
    try text.addBatch((6...9).map { .change(.insert(.make($0), onDuplicate: .keep)) })
    var bytes = text.bytes
    bytes[sound + 30] ^= 1
    let storage = MemoryStorage(bytes)
    storage.put(Array(bytes[sound..<sound + 200]), as: .replacement)
    #expect(try Journal.open(storage).table.numbers == [1, 2, 3, 4, 5])
    #expect(storage.bytes(of: .otherProgramsFile(1)) == nil)
  }

  // MARK: Real files

  private func errorOpening(_ file: URL) async throws -> JSONFileError {
    let error = await #expect(throws: JSONFileError.self) {
      try await JSONFileStore(at: file).open()
    }
    return try #require(error)
  }

  @Test func `opening fails if another queue's file or a folder is at the temporary path`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let first = JSONFileStore(at: file)
      try await first.open()
      try await first.close()
      let before = try Data(contentsOf: file)
      let place = URL(filePath: file.path + ".new")

      let other = JSONFileStore(at: place)
      let queue = TaskQueue(persistence: other)
      try await queue.enqueue(Note("a"))
      for isOpen in [true, false] {
        if !isOpen { try await other.close() }
        let error = try await errorOpening(file)
        #expect(error.code == .unsafeFile)
        #expect(error.message.contains(place.path))
        #expect(error.message.contains("another queue"))
      }
      let again = JSONFileStore(at: place)
      #expect(try await again.count(matching: TaskFilter()) == 1)
      try await again.close()
      try FileManager.default.removeItem(at: place)
      try FileManager.default.removeItem(atPath: place.path + ".lock")

      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: false)
      let error = try await errorOpening(file)
      #expect(error.code == .unsafeFile)
      #expect(error.message.contains(place.path))
      #expect(try Data(contentsOf: file) == before)
      try FileManager.default.removeItem(at: place)

      try Data("notes\n".utf8).write(to: place)
      let last = JSONFileStore(at: file)
      try await last.open()
      try await last.close()
      #expect(try Data(contentsOf: URL(filePath: place.path + "-1")) == Data("notes\n".utf8))
    }
  }
}
