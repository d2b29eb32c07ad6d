import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that only one queue at a time can run on a store that can't be shared.
@Suite struct ExclusiveUseTests {
  private func noteQueue(on store: any Persistence) async -> TaskQueue {
    let queue = TaskQueue(persistence: store)
    await queue.register(Note.self) { _, _ in }
    return queue
  }

  @Test func `a second queue can't run on a store while another queue runs on it`() async throws {
    try await withTemporaryFolder { folder in
      let file = JSONFileStore(at: folder.appending(path: "queue.jsonl"))
      let sealed = file.sealingPayloads(with: TestSeal().payloadSeal)
      for store: any Persistence in [InMemoryStore(), file, sealed] {
        let first = await noteQueue(on: store)
        let second = TaskQueue(name: "second", persistence: store)
        let task = try await first.enqueue(Note("one"))
        try await withRunning(first) {
          _ = try await task.outcome()
          for _ in 0..<2 {
            // The first queue rejects its own second run, and continues to use the store.
            _ = try? await first.runAvailable()
            let error = await #expect(throws: TaskQueueError.self) {
              try await second.runAvailable()
            }
            #expect(error?.code == .alreadyRunning)
            #expect(error?.message.contains("give the queue 'second' another store") == true)
          }
        }
        #expect(try await second.runAvailable() == 0)
      }
      try await file.close()
    }
  }

  @Test func `once a shutdown returns, another queue can run on the store`()
    async throws
  {
    let store = InMemoryStore()
    let first = await noteQueue(on: store)
    let second = TaskQueue(persistence: store)
    let begin = AsyncStream.makeStream(of: Void.self)
    let end = AsyncStream.makeStream(of: Void.self)
    await first.register(Note.self) { _, _ in
      begin.continuation.finish()
      for await _ in end.stream {}
    }
    try await first.enqueue(Note("one"))
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await first.run() }
      for await _ in begin.stream {}
      let executor = ThreadForEachJob(isAwaited: true)
      group.addTask(executorPreference: executor) {
        await first.shutDown()
        // This run starts while the first run is still resuming the callers that wait for its end.
        executor.isAwaited.store(false, ordering: .relaxed)
        let count = try await second.runAvailable()
        #expect(count == 0)
      }
      // By now, the call of `shutDown()` is waiting.
      end.continuation.finish()
      try await group.waitForAll()
    }
  }

  @Test
  func `a queue that was shut down reports its shutdown even if another queue runs on its store`()
    async throws
  {
    let store = InMemoryStore()
    let first = await noteQueue(on: store)
    let second = await noteQueue(on: store)
    await first.shutDown()
    let task = try await second.enqueue(Note("one"))
    try await withRunning(second) {
      _ = try await task.outcome()
      let error = await #expect(throws: TaskQueueError.self) { try await first.run() }
      #expect(error?.code == .shutDown)
    }
  }
}
