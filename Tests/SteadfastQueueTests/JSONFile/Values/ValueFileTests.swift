import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the lines of a file that contain values, and how compactions, verifications and repairs
/// treat these lines.
@Suite struct ValueFileTests {
  private func setting(_ name: String, _ old: [UInt8]?, _ new: [UInt8]?) -> TaskChange {
    .setValue(named: name, from: old, to: new)
  }

  private func storedValues(in bytes: [UInt8]) throws -> [String: [UInt8]] {
    let committed = try JournalReader.read(bytes).table.values.committed
    return Dictionary(uniqueKeysWithValues: committed.map { ($0.key.text, $0.value.bytes) })
  }

  // MARK: Lines

  @Test(arguments: [
    ("\"name\":\"a\",\"value\":\"b\"", [0x62] as [UInt8]?), ("\"name\":\"a\",\"value\":\"\"", []),
    ("\"value\":\"\\u000a\\\"\",\"name\":\"a\"", [0x0A, 0x22]),
    ("\"name\":\"a\",\"data\":\"AA==\"", [0]), ("\"name\":\"a\",\"data\":\"\"", []),
    ("\"name\":\"a\"", nil), ("\"name\":\"a\",\"later\":1", nil),
  ])
  func `a line sets a value, or removes it`(fields: String, expected: [UInt8]?) throws {
    let before = "\"k\":\"value\",\"name\":\"a\",\"value\":\"before\"}"
    let bytes = ForgedFile.bytes([before, "\"k\":\"value\",\(fields)}"])
    #expect(try storedValues(in: bytes) == (expected.map { ["a": $0] } ?? [:]))
  }

  @Test(arguments: [
    "\"name\":\"\"", "\"value\":\"a\"", "\"name\":1", "\"name\":\"a\",\"value\":1",
    "\"name\":\"a\",\"value\":null", "\"name\":\"a\",\"data\":\"A\"",
    "\"name\":\"a\",\"value\":\"a\",\"data\":\"AA==\"", "\"name\":\"a\",\"name\":\"a\"",
    "\"name\":\"\(String(repeating: "n", count: 1_025))\"",
    "\"name\":\"a\",\"value\":\"\(String(repeating: "v", count: 65_537))\"",
    "\"name\":\"a\",\"value\":\"\(String(repeating: "v", count: 256 << 10))\"",
  ])
  func `an invalid line of a value is damage`(fields: String) {
    let bytes = ForgedFile.bytes(["\"k\":\"value\",\(fields)}"])
    #expect {
      try JournalReader.read(bytes)
    } throws: { error in
      guard case .damaged(2, _, let reason)? = error as? JournalProblem else { return false }
      return reason.utf8.count < 200
    }
  }

  @Test func `a compacted task whose line comes after the line of a value is damage`() {
    let value = "\"k\":\"value\",\"name\":\"a\",\"value\":\"b\"}"
    let bytes = ForgedFile.bytes([value, ForgedFile.task(1, place: 1)])
    #expect {
      try JournalReader.read(bytes)
    } throws: { error in
      if case .damaged(3, _, _)? = error as? JournalProblem { true } else { false }
    }
  }

  @Test func `the longest possible line of a value is written and read`() throws {
    let name = String(repeating: "\u{1}", count: 1_024)
    let quotes = [UInt8](repeating: 0x22, count: 65_536)
    let change = setting(name, nil, quotes)
    try change.checkForm()
    let line = try JournalBody(.change(change))
    #expect(line.bytes.count <= JournalBody.maxLength(of: change))
    var text = try JournalText()
    try text.add(.change(change))
    #expect(try storedValues(in: text.bytes) == [name: quotes])
  }

  // MARK: Compaction

  @Test func `a compaction leaves one line for each value, and counts as many bytes as it writes`()
    async throws
  {
    let storage = MemoryStorage()
    let executor = ManualExecutor { 0 }
    let policy = CompactionPolicy(minimumSize: 3_000, spareSize: 0, stepSize: 60, flushSize: 1_000)
    let core = JSONFileCore(storage, executor, compactionPolicy: policy)
    let statistics = try await executor.run {
      try await core.open()
      _ = try await core.apply([setting("kept", nil, [0]), setting("gone", nil, [1])], .durable)
      _ = try await core.apply([setting("gone", [1], nil)], .durable)
      for number in 0..<200 {
        let old = number == 0 ? nil : Array("number \(number - 1)".utf8)
        _ = try await core.apply([setting("last", old, Array("number \(number)".utf8))], .durable)
      }
      return try await core.statistics()
    }
    #expect(statistics.lastCompaction != nil)
    #expect(statistics.byteCount < 6_000)
    #expect(statistics.liveRecordCount == 4)
    #expect(try storedValues(in: storage.bytes) == ["kept": [0], "last": Array("number 199".utf8)])
    let file = try JournalReader.read(storage.bytes).table
    let (inMemory, compactSize) = core.read { ($0.values.byteCount, $0.compactSize) }
    #expect(file.values.byteCount == inMemory)
    #expect(compactSize - 512 == inMemory)
    // The sizes in the range are possible for two such lines.
    #expect(200..<320 ~= inMemory)
  }

  @Test func `a value that is set during a compaction isn't lost`() throws {
    let storage = MemoryStorage()
    var (journal, table) = try Journal.open(storage)
    func add(_ change: TaskChange) throws {
      try journal.append([[try JournalBody(.change(change))]])
      #expect(table.apply([change]) == [.done])
    }
    for name in ["a", "b", "c"] { try add(setting(name, nil, [1])) }
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(stepSize: 1)
    )
    var steps = 0
    let names = ["a", "b", "c", "d"]
    loop: while true {
      switch try compaction.advance(journal, at: .seconds(0)) {
      case .unfinished:
        guard steps < names.count else { break }
        try add(setting(names[steps], table.values[names[steps]], [2, UInt8(steps)]))
        steps += 1
      case .finished(let replacement):
        journal = replacement
        break loop
      }
    }
    #expect(steps == 4)
    #expect(
      try storedValues(in: storage.bytes) == [
        "a": [2, 0], "b": [2, 1], "c": [2, 2], "d": [2, 3],
      ]
    )
  }

  // MARK: Other files

  /// Makes a file of two tasks and two values, and closes it.
  private func makeFile(_ file: URL) async throws {
    let store = JSONFileStore(at: file)
    for change in [
      setting("a", nil, [1]), .insert(.make(1), onDuplicate: .keep),
      setting("b", nil, Array("text".utf8)),
      .insert(.make(2), onDuplicate: .keep), setting("a", [1], [2]),
    ] {
      #expect(try await store.apply([change], durability: .durable) == [.done])
    }
    try await store.close()
  }

  private func reopenedValues(_ file: URL) async throws -> [[UInt8]?] {
    let store = JSONFileStore(at: file)
    let found = try await [
      store.value(named: "a"), store.value(named: "b"), store.value(named: "c"),
    ]
    try await store.close()
    return found
  }

  @Test func `a file with a second hard link keeps its values`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      let backup = folder.appending(path: "backup")
      try FileManager.default.linkItem(at: file, to: backup)
      for _ in 1...2 { #expect(try await reopenedValues(file) == [[2], Array("text".utf8), nil]) }
    }
  }

  @Test func `a repair saves the values that can be read`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      let lines = try Data(contentsOf: file).split(separator: 0x0A).map { Array($0) + [0x0A] }
      // Damages the line of the first task.
      try Data(lines.flipping(2).flatMap { $0 }).write(to: file)
      let repair = try await JSONFileStore.repair(at: file)
      #expect(repair.skippedLineCount == 1)
      #expect(try await reopenedValues(file) == [[2], Array("text".utf8), nil])
      // Damages the last line of a value, so that the previous line applies.
      try await JSONFileStore(at: file).destroy()
      try await makeFile(file)
      let again = try Data(contentsOf: file).split(separator: 0x0A).map { Array($0) + [0x0A] }
      try Data(again.flipping(5).flatMap { $0 }).write(to: file)
      _ = try await JSONFileStore.repair(at: file)
      #expect(try await reopenedValues(file) == [[1], Array("text".utf8), nil])
    }
  }

  @Test func `a verification detects that a value differs in the file`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let changes = [setting("a", nil, [0x31]), setting("b", nil, [0x32])]
      for change in changes { _ = try await store.apply([change], durability: .durable) }
      #expect(try await store.verify().problems == [])
      let handle = try FileHandle(forWritingTo: file)
      var text = try JournalText()
      try text.add(.change(setting("a", nil, [0x31])), .change(setting("b", nil, [0x33])))
      try handle.write(contentsOf: Data(text.bytes))
      try handle.close()
      let problems = try await store.verify().problems.map(\.reason)
      #expect(problems == ["the value 'b' differs between the file and the store"])
      try? await store.close()
    }
  }

  // MARK: Capacity

  @Test func `in a full file, a value may change and shrink, but not grow`() async throws {
    let storage = MemoryStorage()
    let executor = ManualExecutor { 0 }
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: 4_000),
      compactionPolicy: CompactionPolicy(minimumSize: .max, stepSize: 300, flushSize: 1_000),
      thread: { executor }
    ) { (nil, storage) }
    try await executor.run {
      try await core.open()
      _ = try await core.apply([setting("a", nil, [1, 2])], .durable)
      _ = try await fill(core)
      let large = [UInt8](repeating: 1, count: 400)
      for change in [setting("a", [1, 2], large), setting("b", nil, large)] {
        let error = await #expect(throws: JSONFileError.self) {
          try await core.apply([change], .durable)
        }
        #expect(error?.code == .fileFull)
      }
      #expect(try await core.apply([setting("a", [0], large)], .durable) == [.valueDiffers])
      #expect(try await core.apply([setting("a", [1, 2], [3, 4])], .durable) == [.done])
      #expect(try await core.apply([setting("a", [3, 4], [5])], .durable) == [.done])
      #expect(try await core.apply([setting("a", [5], nil)], .durable) == [.done])
      #expect(core.read { $0.values.staged.isEmpty && $0.values.committed.isEmpty })
    }
    #expect(try storedValues(in: storage.bytes) == [:])
  }
}
