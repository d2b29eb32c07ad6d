import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the lines of a file that contain the memory of tasks, and how compactions treat them.
@Suite struct MemoryFileTests {
  private let id = TaskID.numbered(1)
  private var lease: Lease { Lease(id: id, token: 0) }

  private func memoryOfTask(in bytes: [UInt8]) throws -> [String: [UInt8]] {
    let memory = try JournalReader.read(bytes).table.memory(of: id)
    return Dictionary(uniqueKeysWithValues: memory.names.map { ($0, memory[$0] ?? []) })
  }

  /// The body of the line of a change to task 1.
  private func line(_ kind: String, _ fields: String) -> String {
    "\"k\":\"\(kind)\",\"id\":\"\(id)\",\(fields)}"
  }

  // MARK: Lines

  private func fileOfRunningTask(followedBy lines: String...) throws -> [UInt8] {
    var text = try JournalText()
    try text.addTasks([1])
    try text.add(.begin(id), .change(.remember(lease, named: "open", value: [])))
    let plain = text.lines.dropFirst().map { line in
      let text = String(decoding: line.dropLast(), as: UTF8.self)
      return text.range(of: "\"k\"").map { String(text[$0.lowerBound...]) } ?? ""
    }
    return ForgedFile.bytes(plain + lines)
  }

  @Test(arguments: [
    ("remember", "\"name\":\"a\",\"value\":\"b\"", [0x62] as [UInt8]?),
    ("remember", "\"name\":\"a\",\"value\":\"\"", []),
    ("remember", "\"data\":\"AA==\",\"name\":\"a\"", [0]),
    ("remember", "\"name\":\"a\",\"data\":\"\"", []),
    ("complete", "\"name\":\"open\",\"value\":\"b\"", nil),
    ("complete", "\"name\":\"never\",\"value\":\"b\"", nil),
    ("suspend", "\"until\":7", nil), ("suspend", "\"awaits\":[\"open\",\"a\"],\"until\":7", nil),
    ("suspend", "\"until\":1e300,\"later\":true", nil),
  ])
  func `a line of memory is read`(kind: String, fields: String, expected: [UInt8]?) throws {
    let found = try memoryOfTask(in: fileOfRunningTask(followedBy: line(kind, fields)))
    #expect(found["a"] == expected)
    #expect(found["open"] == (fields.contains("open\",\"value") ? [0x62] : []))
  }

  @Test(arguments: [
    ("remember", "\"name\":\"a\""), ("remember", "\"name\":\"\",\"value\":\"a\""),
    ("remember", "\"value\":\"a\""), ("remember", "\"name\":\"a\",\"value\":1"),
    ("remember", "\"name\":\"a\",\"value\":\"a\",\"data\":\"AA==\""),
    ("remember", "\"name\":\"a\",\"data\":\"A\""),
    ("remember", "\"name\":\"a\",\"value\":\"\(String(repeating: "v", count: 131_073))\""),
    ("remember", "\"name\":\"\(String(repeating: "n", count: 1_025))\",\"value\":\"\""),
    ("complete", "\"name\":\"open\""), ("complete", "\"name\":\"open\",\"value\":\"\""),
    ("complete", "\"name\":\"open\",\"data\":\"\""), ("suspend", "\"awaits\":[\"open\"]"),
    ("suspend", "\"until\":\"7\""), ("suspend", "\"until\":7,\"awaits\":[]"),
    ("suspend", "\"until\":7,\"awaits\":\"open\""), ("suspend", "\"until\":7,\"awaits\":[\"\"]"),
    ("memory", "\"name\":\"a\",\"value\":\"b\""), ("restart", "\"available\":1,\"forgets\":false"),
  ])
  func `an invalid line of memory is damage`(kind: String, fields: String) throws {
    let bytes = try fileOfRunningTask(followedBy: line(kind, fields))
    #expect {
      try JournalReader.read(bytes)
    } throws: { error in
      guard case .damaged(5, _, let reason)? = error as? JournalProblem else { return false }
      return reason.utf8.count < 200
    }
  }

  @Test(arguments: ["remember", "suspend"])
  func `only a running task may change its memory or be suspended`(kind: String) throws {
    let fields = kind == "remember" ? "\"name\":\"a\",\"value\":\"b\"" : "\"until\":7"
    let bytes = try fileOfRunningTask(
      followedBy: line("release", "\"later\":0"),
      line(kind, fields)
    )
    #expect(throws: JournalProblem.self) { try JournalReader.read(bytes) }
  }

  @Test func `lines of memory directly follow the line of their task`() throws {
    func taskLines(_ numbers: Int...) -> [String] {
      numbers.map { ForgedFile.task($0, place: UInt64($0)) }
    }
    let step = line("memory", "\"name\":\"a\",\"value\":\"b\"")
    let other = line("memory", "\"name\":\"b\",\"data\":\"AA==\"")
    #expect(
      try memoryOfTask(in: ForgedFile.bytes(taskLines(1) + [step, other] + taskLines(2)))
        == ["a": [0x62], "b": [0]]
    )
    for wrong in [[step], taskLines(2) + [step], taskLines(1, 2) + [step], [step] + taskLines(1)] {
      #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes(wrong)) }
    }
  }

  @Test func `the longest possible lines of memory are written and read`() throws {
    let name = String(repeating: "\u{1}", count: 1_024)
    let quotes = [UInt8](repeating: 0x22, count: 131_072)
    for value in [quotes, [UInt8](repeating: 1, count: 131_072)] {
      let changes: [TaskChange] = [
        .remember(lease, named: name, value: value), .complete(id, named: "open", value: value),
        .suspend(lease, until: .distantFuture, awaiting: Array(repeating: name, count: 80)),
      ]
      var text = try JournalText()
      try text.addTasks([1])
      try text.add(.begin(id), .change(.remember(lease, named: "open", value: [])))
      for change in changes {
        try change.checkForm()
        #expect(try JournalBody(.change(change)).bytes.count <= JournalBody.maxLength(of: change))
        try text.add(.change(change))
      }
      #expect(try memoryOfTask(in: text.bytes) == [name: value, "open": value])
    }
  }

  // MARK: Compaction

  @Test func `a compaction leaves one line for each name, and counts as many bytes as it writes`()
    async throws
  {
    let storage = MemoryStorage()
    let executor = ManualExecutor { 0 }
    let policy = CompactionPolicy(minimumSize: 3_000, spareSize: 0, stepSize: 60, flushSize: 1_000)
    let core = JSONFileCore(storage, executor, compactionPolicy: policy)
    let statistics = try await executor.run {
      try await core.open()
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
      _ = try await core.apply([.insert(.make(2), onDuplicate: .keep)], .durable)
      let leases = try await core.claim(
        ClaimRequest(limit: 2, names: ["Note": 2], now: .seconds(0))
      ).tasks.map(\.lease)
      for lease in leases {
        _ = try await core.apply([.remember(lease, named: "step", value: [0])], .durable)
      }
      for number in 0..<200 {
        let value = Array("number \(number)".utf8)
        _ = try await core.apply([.remember(leases[0], named: "last", value: value)], .durable)
      }
      _ = try await core.apply([.succeed(leases[1], at: .seconds(1), retains: true)], .durable)
      return try await core.statistics()
    }
    #expect(statistics.lastCompaction != nil)
    #expect(statistics.byteCount < 6_000)
    // The header, the end of the compaction, two tasks, the start of an attempt, and two names.
    #expect(statistics.liveRecordCount == 7)
    #expect(try memoryOfTask(in: storage.bytes) == ["step": [0], "last": Array("number 199".utf8)])
    let file = try JournalReader.read(storage.bytes).table
    #expect(file.memory(of: .numbered(2)).isEmpty)
    // The lines of the tasks are longer now, but are counted with their size at the insertion.
    #expect(0..<40 ~= file.byteCount - core.read(\.byteCount))
    #expect(file.brokenInvariants() == [])
  }

  @Test func `a value that a task stores during a compaction isn't lost`() throws {
    let storage = MemoryStorage()
    var (journal, table) = try Journal.open(storage)
    func add(_ change: TaskChange) throws {
      try journal.append([[try JournalBody(.change(change))]])
      #expect(table.apply([change]) == [.done])
    }
    for number in 1...9 { try add(.insert(.make(number), onDuplicate: .keep)) }
    let present = table.claim(1)[0].lease
    try journal.append([[JournalBody(attemptStartOf: id)]])
    for name in ["a", "b", "c"] { try add(.remember(present, named: name, value: [])) }
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(stepSize: 1)
    )
    let changes: [TaskChange] = [
      .remember(present, named: "a", value: [2]), .complete(id, named: "b", value: [3]),
      .remember(present, named: "d", value: [4]),
      .suspend(present, until: .distantFuture, awaiting: ["c"]),
      .complete(id, named: "c", value: [5]),
    ]
    var made = 0
    loop: while true {
      switch try compaction.advance(journal, at: .seconds(0)) {
      case .unfinished:
        guard made < changes.count else { break }
        try add(changes[made])
        made += 1
      case .finished(let replacement):
        journal = replacement
        break loop
      }
    }
    #expect(made == changes.count)
    #expect(try memoryOfTask(in: storage.bytes) == ["a": [2], "b": [3], "c": [5], "d": [4]])
    #expect(try JournalReader.read(storage.bytes).table.record(of: id)?.state == .waiting)
  }
}
