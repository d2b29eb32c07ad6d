import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests waits that are longer than the system's clock can represent, and waits that are cut short.
///
/// Some tests use their own process, because a bug would crash the process or fill its memory.
@Suite(.timeLimit(.minutes(5))) struct LongWaitTests {
  @Test func `a shutdown with the longest possible limit waits for the attempts`() async {
    await #expect(processExitsWith: .success) {
      let queue = TaskQueue()
      let (started, start) = AsyncStream.makeStream(of: Void.self)
      let (ended, end) = AsyncStream.makeStream(of: Void.self)
      await queue.register(Note.self) { _, _ in
        start.finish()
        for await _ in ended {}
      }
      let task = try await queue.enqueue(Note("a"))
      try await withThrowingTaskGroup { group in
        group.addTask { try await queue.run() }
        for await _ in started {}
        group.addTask { await queue.shutDown(within: .seconds(Int64.max)) }
        group.addTask { await queue.shutDown(within: Duration(attoseconds: .max)) }
        // Once a third call has slept and been cut short, the earlier calls have slept, too.
        await withTaskGroup { waiting in
          waiting.addTask { await queue.shutDown(within: .seconds(Int64.max)) }
          for _ in 0..<1_000 { await Task.yield() }
          end.finish()
        }
        try await group.waitForAll()
      }
      #expect(try await task.outcome() == .succeeded)
    }
  }

  @Test func `a store may have the longest possible lease duration and poll interval`() async {
    await #expect(processExitsWith: .success) {
      let store = SharedStore(
        StoreSharing(
          // Even a third of this duration has more seconds than 64 bits can represent.
          leaseDuration: Duration(attoseconds: .max),
          pollInterval: .seconds(Int64.max)
        )
      )
      let queue = TaskQueue(persistence: store.process())
      await queue.register(Note.self) { _, _ in for _ in 0..<1_000 { await Task.yield() } }
      try await queue.enqueue(Note("a"))
      #expect(try await queue.runAvailable() == 1)
    }
  }

  @Test func `a file may have the longest possible flush interval`() async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(
        at: folder.appending(path: "q.jsonl"),
        flushing: .atMostEvery(.seconds(Int64.max))
      )
      let queue = TaskQueue(persistence: store)
      try await queue.enqueue(Note("a"))
      try await queue.enqueue(Note("b"))
      #expect(try await queue.tasks().count == 2)
      try await store.close()
    }
  }

  #if os(Linux)
  @Test func `20,000 attempts with a time limit of an hour leak less than 5 MB`() async {
    await #expect(processExitsWith: .success) {
      let queue = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 4))
      await queue.register(Note.self) { _, _ in await Task.yield() }
      try await enqueueNotes(count: 1_000, to: queue)
      try await queue.runAvailable()
      let growth = try await memoryGrowth {
        for _ in 0..<20 {
          try await enqueueNotes(count: 1_000, to: queue)
          try await queue.runAvailable()
        }
      }
      #expect(growth < 5_000_000)
    }
  }
  #endif
}

private func enqueueNotes(count: Int, to queue: TaskQueue) async throws {
  try await queue.enqueue(
    contentsOf: (0..<count).map { Note("\($0)") },
    options: TaskOptions(timeLimit: .seconds(3_600))
  )
}
