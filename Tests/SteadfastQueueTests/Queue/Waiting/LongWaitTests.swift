import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Waits on the system's clock that are longer than it can count, and waits that are cut short.
///
/// Each runs in a process of its own, as a mistake would crash the process or fill its memory.
@Suite(.timeLimit(.minutes(5))) struct LongWaitTests {
  @Test func `a queue that is shut down within the longest time waits for its attempts`() async {
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
        // A third that is cut short has slept, and so have those before it.
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

  @Test func `a store whose leases and polls take the longest time is served`() async {
    await #expect(processExitsWith: .success) {
      let store = SharedStore(
        StoreSharing(
          // A third of it is also more seconds than 64 bits can count.
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

  @Test func `a file that is flushed once in the longest time is written`() async throws {
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
  @Test func `20,000 attempts within their limit of an hour leave less than 5 MB`() async {
    await #expect(processExitsWith: .success) {
      let queue = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 4))
      await queue.register(Note.self) { _, _ in await Task.yield() }
      try await enqueue(1_000, to: queue)
      try await queue.runAvailable()
      let growth = try await memoryGrowth {
        for _ in 0..<20 {
          try await enqueue(1_000, to: queue)
          try await queue.runAvailable()
        }
      }
      #expect(growth < 5_000_000)
    }
  }
  #endif
}

private func enqueue(_ count: Int, to queue: TaskQueue) async throws {
  try await queue.enqueue(
    contentsOf: (0..<count).map { Note("\($0)") },
    options: TaskOptions(timeLimit: .seconds(3_600))
  )
}
