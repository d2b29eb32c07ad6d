import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests how a queue handles prefetched tasks: tasks that are claimed before a worker is idle.
@Suite struct ClaimBatchTests {
  /// A store that hands out many tasks per claim.
  private struct BatchStore: ForwardingStore {
    let base: any Persistence
    var claimBatch = 64
    let claims = Log<Int>()

    func claim(_ request: ClaimRequest) async throws -> Claim {
      let claim = try await base.claim(request)
      claims.add(claim.tasks.count)
      return claim
    }
  }

  private let log = Log<String>()
  private let store: BatchStore

  init() { store = BatchStore(base: InMemoryStore()) }

  /// Runs a queue that prefetches, because its previous attempts took no time.
  ///
  /// Its slow tasks wait until the gate opens.
  private func withQueue(
    over store: BatchStore? = nil,
    workers: Int = 2,
    limits: [RateLimit] = [],
    maxInterruptions: RetryLimit = 5,
    _ body: @Sendable (TaskQueue, Waiters<Void>) async throws -> Void
  ) async throws {
    let queue = TaskQueue(
      persistence: store ?? self.store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: workers,
        rateLimits: limits,
        maxInterruptions: maxInterruptions
      ),
      clock: try VirtualTime.required.clock
    )
    let (gate, log) = (Waiters<Void>(), log)
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      if note.text.hasPrefix("slow") { try await gate.wait { nil } }
    }
    try await withRunning(queue) {
      try await queue.enqueue(contentsOf: ["a", "b"].map(Note.init))
      try await queue.waitUntilIdle()
      try await body(queue, gate)
      gate.resumeAll(with: .success(()))
      try await queue.waitUntilIdle()
    }
  }

  private func storedCount(of ids: [TaskID], in state: TaskState) async throws -> Int {
    try await store.count(matching: TaskFilter(ids: Set(ids), states: [state]))
  }

  @Test(.virtualTime)
  func `short tasks are claimed in batches, and each is performed once`() async throws {
    try await withQueue { queue, _ in
      try await queue.enqueue(contentsOf: (1...200).map { Note("\($0)") })
      try await queue.waitUntilIdle()
    }
    #expect(log.entries.count == 202 && Set(log.entries).count == 202)
    #expect(store.claims.entries.max() == 64)
    #expect(store.claims.entries.count { $0 > 0 } < 10)
  }

  @Test(.virtualTime(.manual))
  func `all tasks in a batch handed out by a file count as interrupted when the process ends`()
    async throws
  {
    let time = try VirtualTime.required
    try await withTemporaryFolder { folder in
      let (file, copy) = (folder.appending(path: "tasks"), folder.appending(path: "copy"))
      let base = JSONFileStore(at: file)
      let store = BatchStore(base: base, claimBatch: base.claimBatch)
      try await withQueue(over: store) { queue, _ in
        let notes = ["slow 1", "slow 2"] + (3...200).map { "\($0)" }
        let tasks = try await queue.enqueue(contentsOf: notes.map(Note.init))
        await time.advance(by: .zero)
        try FileManager.default.copyItem(at: file, to: copy)
        let crashed = JSONFileStore(at: copy)
        let records = try await crashed.tasks(matching: .unfinished, after: nil, limit: 1_000)
        #expect(records.map(\.id) == tasks.map(\.id))
        #expect(records.allSatisfy { $0.state == .waiting })
        #expect(records.map(\.interruptionCount) == (0..<200).map { $0 < 64 ? 1 : 0 })
        try await crashed.close()
      }
      #expect(store.claims.entries.max() == 64)
      try await base.close()
    }
    #expect(log.entries.count == 202)
  }

  @Test(.virtualTime(.manual))
  func `prefetched tasks that no worker starts in time are released, and retain their order`()
    async throws
  {
    let time = try VirtualTime.required
    try await withQueue { queue, _ in
      let slow = try await queue.enqueue(contentsOf: ["slow 1", "slow 2"].map(Note.init))
      let later = try await queue.enqueue(contentsOf: (1...9).map { Note("\($0)") })
      await time.advance(by: .milliseconds(50))
      #expect(try await storedCount(of: slow.map(\.id), in: .running) == 2)
      #expect(try await storedCount(of: later.map(\.id), in: .running) > 0)
      await time.advance(by: .milliseconds(200))
      #expect(try await storedCount(of: slow.map(\.id), in: .running) == 2)
      #expect(try await storedCount(of: later.map(\.id), in: .waiting) == 9)
      try await queue.enqueue(Note("first"), priority: .high)
    }
    #expect(log.entries == ["a", "b", "slow 1", "slow 2", "first"] + (1...9).map { "\($0)" })
  }

  @Test(.virtualTime(.manual))
  func `a prefetched task is cancelled, paused and rescheduled at once`() async throws {
    let time = try VirtualTime.required
    try await withQueue { queue, _ in
      let tasks = try await queue.enqueue(
        contentsOf: ["slow 1", "slow 2", "cancelled", "paused", "late"].map(Note.init)
      )
      let ids = tasks.map(\.id)
      await time.advance(by: .zero)
      #expect(try await storedCount(of: ids, in: .running) == 5)
      #expect(try await queue.cancel(ids[2]))
      #expect(try await queue.pause(ids[3]))
      #expect(try await queue.reschedule(ids[4], to: .distantFuture))
      #expect(try await tasks[2].outcome() == .cancelled)
      #expect(try await storedCount(of: [ids[3]], in: .paused) == 1)
      #expect(try await storedCount(of: [ids[4]], in: .waiting) == 1)
    }
    #expect(log.entries == ["a", "b", "slow 1", "slow 2"])
  }

  @Test(.virtualTime(.manual))
  func `a pause releases prefetched tasks, and the next pause doesn't wait for them`()
    async throws
  {
    let time = try VirtualTime.required
    try await withQueue { queue, gate in
      let names = ["slow 1", "slow 2", "slow 3", "slow 4", "5"]
      let ids = try await queue.enqueue(contentsOf: names.map(Note.init)).map(\.id)
      await time.advance(by: .zero)
      #expect(try await storedCount(of: ids, in: .running) == 5)
      await queue.pause()
      #expect(try await storedCount(of: ids, in: .waiting) == 3)
      await queue.resume()
      gate.resumeAll(with: .success(()))
      // The queue must start an attempt before it can be paused again, so it claims no other tasks.
      await queue.pause()
      await time.advance(by: .zero)
      #expect(try await storedCount(of: ids, in: .running) <= 2)
      await queue.resume()
      await time.advance(by: .zero)
    }
    #expect(log.entries == ["a", "b", "slow 1", "slow 2", "slow 3", "slow 4", "5"])
  }

  @Test(.virtualTime(.manual))
  func `a claim that contains an interrupted task releases its prefetched tasks`() async throws {
    let time = try VirtualTime.required
    try await withQueue { queue, gate in
      await queue.pause()
      let tasks = try await queue.enqueue(
        contentsOf: ["slow 1", "slow 2", "3", "4"].map(Note.init)
      )
      var record = try #require(try await queue.tasks(matching: .unfinished).last)
      try await queue.remove(record.id)
      record.interruptionCount = 1
      _ = try await store.apply([.insert(record, onDuplicate: .keep)], durability: .durable)
      await queue.resume()
      await time.advance(by: .zero)
      #expect(try await storedCount(of: tasks.map(\.id), in: .running) == 2)
    }
    #expect(log.entries == ["a", "b", "slow 1", "slow 2", "3", "4"])
  }

  @Test(.virtualTime, arguments: [0, 1])
  func `a queue that tolerates at most one interruption doesn't prefetch`(limit: Int) async throws {
    try await withQueue(maxInterruptions: .atMost(limit)) { queue, _ in
      try await queue.enqueue(contentsOf: (1...50).map { Note("\($0)") })
      try await queue.waitUntilIdle()
    }
    #expect(store.claims.entries.max() == 2)
  }

  @Test(.virtualTime)
  func `with a rate limit or limited time, the queue doesn't prefetch`() async throws {
    try await withQueue(limits: [.atMost(1_000, per: .seconds(1))]) { queue, _ in
      try await queue.enqueue(contentsOf: (1...50).map { Note("\($0)") })
      try await queue.waitUntilIdle()
    }
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: try VirtualTime.required.clock
    )
    let log = log
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    try await queue.enqueue(contentsOf: (1...50).map { Note("\($0)") })
    #expect(try await queue.run(within: .seconds(1)) == 50)
    #expect(store.claims.entries.max() == 2)
    #expect(log.entries.count == 102)
  }

  @Test(.virtualTime(.manual))
  func `prefetched tasks are released when the run ends`() async throws {
    let time = try VirtualTime.required
    await #expect(throws: TaskQueueError.self) {
      try await withQueue { queue, _ in
        let tasks = try await queue.enqueue(contentsOf: ["slow 1", "slow 2", "3"].map(Note.init))
        let ids = tasks.map(\.id)
        await time.advance(by: .zero)
        #expect(try await storedCount(of: ids, in: .running) == 3)
        await queue.shutDown(within: .zero)
        #expect(try await storedCount(of: ids, in: .waiting) == 3)
      }
    }
    #expect(log.entries == ["a", "b", "slow 1", "slow 2"])
  }
}
