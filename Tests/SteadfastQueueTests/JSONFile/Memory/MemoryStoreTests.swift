import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct MemoryStoreTests {
  private let id = TaskID.numbered(1)

  /// A file whose task 1 remembers a step and an open value, and is suspended.
  private func makeFile(_ file: URL) async throws {
    let store = JSONFileStore(at: file)
    _ = try await store.apply([.insert(.make(1), onDuplicate: .keep)], durability: .durable)
    let lease = try await store.claim(
      ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0))
    ).tasks[0].lease
    for change: TaskChange in [
      .remember(lease, named: "step", value: Array("text".utf8)),
      .remember(lease, named: "open", value: []),
      .suspend(lease, until: .distantFuture, awaiting: ["open"]),
      .insert(.make(2, available: 60), onDuplicate: .keep),
    ] {
      #expect(try await store.apply([change], durability: .durable) == [.done])
    }
    try await store.close()
  }

  private func taskAndMemory(
    in file: URL
  ) async throws -> (record: TaskRecord?, memory: TaskMemory) {
    let store = JSONFileStore(at: file)
    let filter = TaskFilter(ids: [id])
    let record = try await store.tasks(matching: filter, after: nil, limit: 1).first
    let memory = try await store.memory(of: id)
    try await store.close()
    return (record, memory)
  }

  private var expectedMemory: TaskMemory {
    var memory = TaskMemory()
    (memory["step"], memory["open"]) = (Array("text".utf8), [])
    return memory
  }

  private func lines(of file: URL) throws -> [[UInt8]] {
    try Data(contentsOf: file).split(separator: 0x0A).map { Array($0) + [0x0A] }
  }

  @Test(arguments: [false, true])
  func `reopening a file keeps the memory of its tasks`(isLinked: Bool) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      if isLinked {
        // Opening a file with a second hard link compacts it into a new file.
        let backup = folder.appending(path: "backup")
        try FileManager.default.linkItem(at: file, to: backup)
      }
      for _ in 1...2 {
        let found = try await taskAndMemory(in: file)
        #expect(found.memory == expectedMemory)
        #expect(found.record?.state == .suspended)
        #expect(found.record?.memorySize == expectedMemory.size)
      }
    }
  }

  @Test func `a repair saves all memory that can be read`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      // Damages one line at a time: of the step, of the open value, and of the suspension.
      for (lost, memory, state) in [
        (3, ["open"], TaskState.suspended), (4, ["step"], .suspended),
        (5, ["open", "step"], .waiting),
      ] {
        try await makeFile(file)
        try Data(lines(of: file).flipping(lost).flatMap { $0 }).write(to: file)
        let repair = try await JSONFileStore.repair(at: file)
        #expect(repair.skippedLineCount == 1)
        let found = try await taskAndMemory(in: file)
        #expect(found.memory.names.sorted() == memory)
        #expect(found.record?.state == state)
        try await JSONFileStore(at: file).destroy()
      }
    }
  }

  @Test
  func `if the line of an open value is lost, the value's completion is kept, and wakes the task`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      let store = JSONFileStore(at: file)
      let completion = TaskChange.complete(id, named: "open", value: [7])
      #expect(try await store.apply([completion], durability: .durable) == [.done])
      try await store.close()
      try Data(lines(of: file).flipping(4).flatMap { $0 }).write(to: file)
      _ = try await JSONFileStore.repair(at: file)
      let found = try await taskAndMemory(in: file)
      #expect(found.memory["open"] == [7])
      #expect(found.record?.state == .waiting)
    }
  }

  @Test func `the line of an attempt proves that a suspended task has woken`() throws {
    var text = try JournalText()
    let lease = Lease(id: id, token: 0)
    try text.addTasks([1])
    try text.add(
      .begin(id),
      .change(.remember(lease, named: "open", value: [])),
      .change(.suspend(lease, until: .distantFuture, awaiting: ["open"])),
      .change(.complete(id, named: "open", value: [1])),
      .begin(id),
      .change(.remember(lease, named: "late", value: [2])),
      .seal
    )
    var lines = text.lines
    lines.remove(at: 5)
    let found = try JournalInspection(lines.flatMap { $0 })
    #expect(found.table.memory(of: id).names.sorted() == ["late", "open"])
    #expect(found.table.record(of: id)?.state == .waiting)
    #expect(found.table.brokenInvariants() == [])
  }

  @Test func `a verification detects that a task's memory differs in the file`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      let store = JSONFileStore(at: file)
      _ = try await store.apply([.complete(id, named: "open", value: [1])], durability: .durable)
      #expect(try await store.verify().problems == [])
      try await store.close()
      // The second store opens the file before the line is changed.
      let second = JSONFileStore(at: file)
      try await second.open()
      var contents = lines(ofText: String(decoding: try Data(contentsOf: file), as: UTF8.self))
      let line = try #require(contents.firstIndex { $0.contains("\"name\":\"step\"") })
      contents[line] = lineWithOtherValue(contents[line])
      try Data(contents.joined().utf8).write(to: file)
      let problems = try await second.verify().problems.map(\.reason)
      let expected =
        "the values that task \(id) remembers differ between the file and the store"
      #expect(problems.contains(expected), "\(problems)")
      try? await second.close()
    }
  }

  private func lines(ofText text: String) -> [String] {
    text.split(separator: "\n").map { $0 + "\n" }
  }

  /// The line with another value and a correct checksum.
  private func lineWithOtherValue(_ line: String) -> String {
    let rest = String(line.dropFirst("{\"c\":\"00000000".count).dropLast())
      .replacing("\"value\":\"text\"", with: "\"value\":\"test\"")
    return String(decoding: ForgedFile.line(rest), as: UTF8.self)
  }

  @Test
  func `in a full file, tasks can still change their memory, be completed, and end`() async throws {
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
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
      let request = ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0))
      let lease = try await core.claim(request).tasks[0].lease
      _ = try await core.apply([.remember(lease, named: "open", value: [])], .durable)
      _ = try await fill(core)
      let large = [UInt8](repeating: 1, count: 400)
      for change: TaskChange in [
        .remember(lease, named: "step", value: large), .complete(id, named: "open", value: large),
      ] {
        #expect(try await core.apply([change], .durable) == [.done])
      }
      let error = await #expect(throws: JSONFileError.self) {
        try await core.apply([.insert(.make(9_999), onDuplicate: .keep)], .durable)
      }
      #expect(error?.code == .fileFull)
      #expect(core.read { $0.memory(of: id).names } == ["open", "step"])
      let suspension = TaskChange.suspend(lease, until: .distantFuture, awaiting: [])
      #expect(try await core.apply([suspension], .durable) == [.done])
      let cancellation = TaskChange.cancel(.unclaimed(id), at: .seconds(1), retains: false)
      #expect(try await core.apply([cancellation], .durable) == [.done])
      #expect(core.read { $0.memoryCount == 0 && $0.stagedMemories.isEmpty })
    }
    let file = try JournalReader.read(storage.bytes).table
    #expect(file.brokenInvariants() == [])
  }
}
