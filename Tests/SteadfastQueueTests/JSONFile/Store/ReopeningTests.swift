import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests changes after which a reader of the file might find other tasks than the store has.
@Suite struct ReopeningTests {
  /// The tasks that a new process finds in the file.
  private func tasksAfterReopening(_ file: URL) async throws -> [TaskRecord] {
    let store = JSONFileStore(at: file)
    let tasks = try await TaskQueue(persistence: store).tasks()
    try await store.close()
    return tasks
  }

  @Test func `replacing tasks that are being retried leaves a file that can be read`() async throws
  {
    try await withTemporaryFolder { folder in
      for round in 1...5 {
        let file = folder.appending(path: "\(round).jsonl")
        let store = JSONFileStore(at: file)
        let queue = TaskQueue(
          persistence: store,
          configuration: TaskQueueConfiguration(maxConcurrentTasks: 2)
        )
        await queue.register(Note.self) { _, context in
          if context.retryCount < 2 { throw Refusal() }
        }
        try await withRunning(queue) {
          for number in 1...100 {
            try await queue.enqueue(
              Note("\(number)"),
              usesBackoff: false,
              uniqueKey: "k",
              onDuplicate: .replace
            )
          }
        }
        let left = try await queue.tasks()
        try await store.close()
        #expect(try await tasksAfterReopening(file).map(\.id) == left.map(\.id))
      }
    }
  }

  @Test func `the last task of a batch with one key replaces the others`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let queue = TaskQueue(persistence: store)
      try await queue.enqueue(
        contentsOf: ["a", "b", "c"].map(Note.init),
        options: TaskOptions(onDuplicate: .replace)
      ) { _ in "k" }
      let left = try await queue.tasks()
      #expect(left.count == 1)
      try await store.close()
      #expect(try await tasksAfterReopening(file).map(\.id) == left.map(\.id))
    }
  }

  @Test func `an interrupted task gets the payload of the task that replaces it`() async throws {
    let storage = MemoryStorage()
    let file = URL(filePath: "/queue.jsonl")
    let names = ["Note": Int.max]
    for process in 1...3 {
      let core = JSONFileCore(file) { (nil, storage) }
      try await core.open()
      _ = try await core.apply(
        [.insert(.make(process, key: "k"), onDuplicate: .replace)],
        .durable
      )
      let claim = try await core.claim(
        ClaimRequest(limit: 9, names: names, now: .seconds(0))
      )
      // The process is killed here, while the task runs.
      #expect(claim.tasks.numbers == [1])
      let payload = try claim.tasks[0].record.payload.bytes()
      #expect(payload == (try TaskRecord.make(process).payload.bytes()))
      #expect(claim.tasks[0].record.interruptionCount == process - 1)
    }
  }

  @Test func `changes made while a store closes are stored or refused, and no stored task is lost`()
    async throws
  {
    for _ in 1...50 {
      let storage = MemoryStorage()
      let core = JSONFileCore(URL(filePath: "/queue.jsonl")) { (nil, storage) }
      try await core.open()
      let stored = Log<Int>()
      await withTaskGroup { group in
        for writer in 0..<3 {
          group.addTask {
            for number in 1...20 {
              let change = TaskChange.insert(.make(writer * 100 + number), onDuplicate: .keep)
              guard (try? await core.apply([change], .durable)) != nil else { return }
              stored.add(number)
            }
          }
        }
        group.addTask { try? await core.close() }
      }
      let found = try JournalReader.read(storage.bytes).table.count(matching: TaskFilter())
      #expect(found == stored.count)
    }
  }
}
