import Foundation
import Testing

@testable import SteadfastQueue

/// Tests when a file is full, and when a compaction makes room.
@Suite struct FileFullTests {
  /// Adds a task to a new file with a size limit, and returns the error's code, or `nil`.
  private func insert(limit: Int) async throws -> JSONFileError.Code? {
    let storage = MemoryStorage()
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: limit)
    ) { (nil, storage) }
    try await core.open()
    do {
      let outcomes = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
      #expect(outcomes == [.done])
      return nil
    } catch let error as JSONFileError {
      return error.code
    }
  }

  @Test func `a compaction helps if a quarter of the file is dead and the change fits afterwards`()
  {
    func compactionHelps(size: Int, compactSize: Int) -> Bool {
      FileFull(needed: 100, limit: 4000, size: size, compactSize: compactSize).shouldCompact
    }
    #expect(compactionHelps(size: 4000, compactSize: 3000))
    #expect(!compactionHelps(size: 4000, compactSize: 3001))
    #expect(compactionHelps(size: 8000, compactSize: 3900))
    #expect(!compactionHelps(size: 8000, compactSize: 3901))
  }

  @Test func `a file may be exactly as large as its limit`() async throws {
    let header = try JournalText().bytes.count
    let line = try JournalBody(.change(.insert(.make(1), onDuplicate: .keep))).byteCount
    #expect(try await insert(limit: header + line) == nil)
    #expect(try await insert(limit: header + line - 1) == .fileFull)
  }
}
