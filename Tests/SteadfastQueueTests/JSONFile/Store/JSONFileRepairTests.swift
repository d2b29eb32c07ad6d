import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the public functions that verify and repair files, with real files.
@Suite struct JSONFileRepairTests {
  /// Makes a file of `tasks` tasks, and closes it.
  private func makeFile(_ file: URL, tasks: Int = 5) async throws {
    let store = JSONFileStore(at: file)
    for number in 1...tasks { _ = try await store.apply([insertion(number)], durability: .durable) }
    try await store.close()
  }

  private func insertion(_ number: Int) -> TaskChange {
    .insert(.make(number), onDuplicate: .keep)
  }

  private func lines(of file: URL) throws -> [[UInt8]] {
    try Data(contentsOf: file).split(separator: 0x0A).map { Array($0) + [0x0A] }
  }

  private func write(_ lines: [[UInt8]], to file: URL) throws {
    let handle = try FileHandle(forWritingTo: file)
    try handle.truncate(atOffset: 0)
    try handle.write(contentsOf: Data(lines.flatMap { $0 }))
    try handle.close()
  }

  private func taskNumbers(in file: URL) async throws -> [Int] {
    let store = JSONFileStore(at: file)
    let records = try await store.tasks(matching: TaskFilter(), after: nil, limit: .max)
    try await store.close()
    return records.map { Int($0.id.low) }
  }

  private func fileNames(in folder: URL) throws -> Set<String> {
    Set(try FileManager.default.contentsOfDirectory(atPath: folder.path))
  }

  @Test func `a damaged file is refused, reported, repaired and served`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file)
      try write(try lines(of: file).flipping(3), to: file)
      let damaged = try Data(contentsOf: file)

      let error = await #expect(throws: JSONFileError.self) {
        try await JSONFileStore(at: file).open()
      }
      #expect(error?.code == .damaged)
      #expect(error?.message.contains("repair(at:)") == true)

      let report = try await JSONFileStore.verify(at: file)
      #expect(!report.isSound)
      #expect(report.problems.map(\.line) == [4])
      #expect(report.counts == [.waiting: 4])
      #expect(try Data(contentsOf: file) == damaged)

      let repair = try await JSONFileStore.repair(at: file)
      #expect(repair.report == report)
      #expect(repair.skippedLineCount == 1)
      #expect(repair.skippedLines == report.problems)
      let copy = try #require(repair.copy)
      #expect(copy.lastPathComponent == "queue.jsonl.damaged-1")
      #expect(try Data(contentsOf: copy) == damaged)
      let mode = try FileManager.default.attributesOfItem(atPath: copy.path)[.posixPermissions]
      #expect(mode as? Int == 0o600)
      #expect(
        try fileNames(in: folder) == ["queue.jsonl", "queue.jsonl.lock", copy.lastPathComponent]
      )

      #expect(try await taskNumbers(in: file) == [1, 2, 4, 5])
      #expect(try await JSONFileStore.verify(at: file).isSound)
      #expect(try await JSONFileStore.repair(at: file).copy == nil)
    }
  }

  @Test func `a report can be printed`() {
    var report = JSONFileReport()
    report.byteCount = 96
    report.recordCount = 1
    #expect("\(report)" == "sound, 96 bytes: 1 good line; tasks: none")

    let problems = (1...12).map { JSONFileReport.Problem(line: $0, byte: 0, reason: "bad") }
    report.problems = problems
    report.problemCount = 20
    report.lostRecordCount = 20
    report.tornByteCount = 3
    report.counts = [.succeeded: 4, .waiting: 2]
    let lines = [
      "damaged, 96 bytes: 1 good line, 20 lost, 3 bytes torn at the end; tasks: 2 waiting, 4 succeeded"
    ]
    #expect(
      "\(report)"
        == (lines + problems.prefix(10).map(\.description) + ["and 10 more problems"])
        .joined(separator: "\n")
    )
  }

  @Test func `a second repair makes a second copy, and follows no link`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let elsewhere = folder.appending(path: "elsewhere")
      try Data("mine".utf8).write(to: elsewhere)
      try FileManager.default.createSymbolicLink(
        at: folder.appending(path: "queue.jsonl.damaged-1"),
        withDestinationURL: elsewhere
      )
      try await makeFile(file)
      for number in 2...3 {
        try write(try lines(of: file).flipping(2), to: file)
        let repair = try await JSONFileStore.repair(at: file)
        #expect(repair.copy?.lastPathComponent == "queue.jsonl.damaged-\(number)")
      }
      #expect(try Data(contentsOf: elsewhere) == Data("mine".utf8))
    }
  }

  @Test func `a file in use is neither verified nor repaired by others`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await store.open()
      for _ in 0..<2 {
        let verifying = await #expect(throws: JSONFileError.self) {
          _ = try await JSONFileStore.verify(at: file)
        }
        #expect(verifying?.code == .inUse)
        #expect(verifying?.message.contains("by another queue in this process") == true)
        let repairing = await #expect(throws: JSONFileError.self) {
          _ = try await JSONFileStore.repair(at: file)
        }
        #expect(repairing?.code == .inUse)
        #expect(repairing?.message == verifying?.message)
      }
      try await store.close()
      #expect(try await JSONFileStore.verify(at: file).wasClosed)
    }
  }

  @Test func `verifying and repairing keep the file's permissions`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(permissions: .group)
      let store = JSONFileStore(at: file, options: options)
      for number in 1...5 { _ = try await store.apply([insertion(number)], durability: .durable) }
      try await store.close()
      func mode() throws -> Int? {
        try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int
      }
      _ = try await JSONFileStore.verify(at: file)
      #expect(try mode() == 0o660)
      try write(try lines(of: file).flipping(3), to: file)
      _ = try await JSONFileStore.repair(at: file)
      #expect(try mode() == 0o660)
    }
  }

  @Test func `verifying and repairing a missing file creates nothing`() async throws {
    try await withTemporaryFolder { folder in
      for path in ["queue.jsonl", "no folder/queue.jsonl"] {
        let file = folder.appending(path: path)
        let verifying = await #expect(throws: JSONFileError.self) {
          _ = try await JSONFileStore.verify(at: file)
        }
        #expect(verifying?.message.contains("there is no file") == true)
        await #expect(throws: JSONFileError.self) { _ = try await JSONFileStore.repair(at: file) }
      }
      let made = try fileNames(in: folder)
      #expect(made.isEmpty)
    }
  }

  @Test func `a repair leaves a file of another format alone`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "notes.txt")
      let contents = Data("milk\neggs\n".utf8)
      try contents.write(to: file)
      let error = await #expect(throws: JSONFileError.self) {
        _ = try await JSONFileStore.repair(at: file)
      }
      #expect(error?.code == .notAQueueFile)
      #expect(try Data(contentsOf: file) == contents)
      #expect(try fileNames(in: folder) == ["notes.txt"])
    }
  }

  // MARK: Seals

  @Test func `damage to any byte of a closed file's last batch is refused`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await makeFile(file, tasks: 2)
      let lines = try lines(of: file)
      let bytes = lines.flatMap { $0 }
      let seal = bytes.count - lines[lines.count - 1].count
      for offset in seal - lines[lines.count - 2].count..<seal {
        var damaged = bytes
        damaged[offset] ^= 1
        #expect(throws: JournalProblem.self, "byte \(offset)") { try JournalReader.read(damaged) }
      }
      // If only the seal is damaged, no task is lost.
      for offset in seal..<bytes.count {
        var damaged = bytes
        damaged[offset] ^= 1
        let report = try JournalInspection(damaged).report
        #expect(report.isSound)
        #expect(!report.wasClosed)
        #expect(report.counts == [.waiting: 2])
        #expect(report.tornByteCount == bytes.count - seal)
      }
    }
  }

  @Test func `a large file with a little damage is repaired`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let count = Soak.runs(short: 3_000)
      var text = try JournalText()
      try text.addTasks(1...count)
      let damaged = [1, count / 2, count - 1]
      let lines = damaged.reduce(text.lines) { $0.flipping($1) }
      let isMade = FileManager.default.createFile(
        atPath: file.path,
        contents: Data(lines.joined()),
        attributes: [.posixPermissions: 0o600]
      )
      #expect(isMade)
      let repair = try await JSONFileStore.repair(at: file)
      #expect(repair.report.problems.map(\.line) == damaged.map { $0 + 1 })
      #expect(repair.report.counts == [.waiting: count - 3])
      #expect(try await JSONFileStore.verify(at: file).counts == [.waiting: count - 3])
    }
  }
}
