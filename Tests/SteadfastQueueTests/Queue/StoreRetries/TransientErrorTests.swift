import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that a queue waits for a temporarily unavailable store, and then continues.
@Suite(.virtualTime) struct TransientErrorTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue whose tasks each take the number of seconds in their text.
  private func makeQueue(on store: some Persistence, workers: Int = 4) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] note, _ in
      log.add(note.text)
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
      return note.text
    }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `a store that is unavailable for a minute doesn't stop the workers`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { base in
      let store = FaultInjectingStore(base)
      let queue = await makeQueue(on: store)
      let texts = (1...30).map { "\($0)" }
      let tasks = try await queue.enqueue(contentsOf: texts.map(Note.init))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(10))
        let before = store.calls.count
        store.cutOff(throwing: TransientFault())
        try await clock.sleep(for: .seconds(60))
        // Each pending call is retried with growing delays.
        #expect(store.calls.count - before < 60)
        store.restore()
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
      }
      #expect(log.entries.sorted() == texts.sorted())
      let statistics = try await queue.statistics
      #expect(statistics.succeeded == 30)
      #expect(statistics.storeRetries > 0)
    }
  }

  @Test func `a pass also waits for an unavailable store`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(contentsOf: (0..<20).map { _ in Note("0") })
    store.inject(.transientError, times: 5) { $0.kind == .claim }
    #expect(try await queue.runAvailable() == 20)
    #expect(clock.now.offset > .seconds(1))
    #expect(try await queue.count == 0)
  }

  @Test func `each retried call is reported by an event, and counted`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    store.inject(.transientError, times: 3) { $0.changes.contains("insert") }
    let events = queue.events
    try await queue.enqueue(Note("0"))
    await queue.shutDown()
    var delays: [Double] = []
    var last = Date(timeIntervalSinceReferenceDate: 0)
    for await event in events {
      guard case .storeUnavailable(let reason, let date) = event else { continue }
      #expect(reason == "the store is unavailable for a while")
      #expect(event.taskID == nil && event.description.contains(reason))
      delays.append(date.timeIntervalSince(last))
      last = date
    }
    #expect(delays.count == 3)
    for (delay, middle) in zip(delays, [0.1, 0.2, 0.4]) {
      #expect(delay >= middle / 2 && delay <= middle * 1.5, "\(delays)")
    }
    #expect(abs(clock.date.timeIntervalSince(last)) < 1e-5)
    #expect(try await queue.statistics.storeRetries == 3)
  }

  @Test(arguments: FaultInjectingStore.Call.Kind.allCases)
  func `each kind of call is retried`(kind: FaultInjectingStore.Call.Kind) async throws {
    let store = FaultInjectingStore()
    store.inject(.transientError, times: 2) { $0.kind == kind }
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("1"))
    try await withRunning(queue) {
      let isStored = try await queue.contains(task.id)
      #expect(isStored)
      #expect(try await queue.tasks().count == 1)
      #expect(try await queue.count == 1)
      #expect(try await queue.census().rows.map(\.count) == [1])
      #expect(try await queue.value(named: "a") == nil)
      #expect(try await queue.memory(of: task.id).isEmpty)
      #expect(try await task.outcome() == .succeeded)
    }
    // A store can't be used after it was closed or destroyed.
    let expected = [.close, .destroy].contains(kind) ? 0 : 2
    #expect(try await queue.statistics.storeRetries == expected)
  }

  @Test func `an error that isn't transient stops the run at once`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Note("0"))
    store.inject(.error(Refusal("the disk is on fire"))) { $0.kind == .claim }
    let error = await queueError { try await queue.runAvailable() }
    #expect(error?.code == .storeFailed)
    #expect(try await queue.statistics.storeRetries == 0)
  }

  @Test func `calls of the package's own stores are not retried`() throws {
    let folder = FileManager.default.temporaryDirectory
    let file = JSONFileStore(at: folder.appending(path: "unused"))
    let seal = TestSeal().payloadSeal
    #expect(TaskQueue(persistence: InMemoryStore()).core.storage.retryingStore == nil)
    #expect(TaskQueue(persistence: file).core.storage.retryingStore == nil)
    #expect(
      TaskQueue(persistence: file.sealingPayloads(with: seal)).core.storage.retryingStore == nil
    )
    let faulty = FaultInjectingStore().sealingPayloads(with: seal)
    #expect(TaskQueue(persistence: faulty).core.storage.retryingStore != nil)
    #expect(
      TaskQueue(persistence: FaultInjectingStore(appliesAtOnce: true)).core.storage.retryingStore
        == nil
    )
  }

  // MARK: Ending a wait

  @Test func `a cancelled caller gets the store's error`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.open()
    store.cutOff(throwing: TransientFault())
    await withTaskGroup { group in
      group.addTask {
        await #expect(throws: TransientFault.self) { try await queue.enqueue(Note("0")) }
      }
      try? await clock.sleep(for: .seconds(30))
      group.cancelAll()
    }
    #expect(clock.now.offset == .seconds(30))
    store.restore()
    #expect(try await queue.count == 0)
  }

  @Test func `a cancelled caller doesn't wait until another caller's pause is stored`() async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.open()
    store.inject(.transientError, times: nil) { $0.kind == .value }
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.pause(durability: .durable) }
      try await clock.sleep(for: .seconds(10))
      await withThrowingTaskGroup { second in
        second.addTask { try await queue.pause(name: "Note", durability: .durable) }
        try? await clock.sleep(for: .seconds(10))
        second.cancelAll()
        await #expect(throws: CancellationError.self) { try await second.waitForAll() }
      }
      #expect(clock.now.offset == .seconds(20))
      store.restore()
      try await group.waitForAll()
    }
    #expect(queue.isPaused)
  }

  @Test func `an idle queue shuts down while its store is unavailable`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Note("1"))
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(5))
    store.cutOff(throwing: TransientFault())
    queue.core.dispatch.lookForWork()
    try await clock.sleep(for: .seconds(5))
    await queue.shutDown()
    try await run
    #expect(clock.now.offset == .seconds(10))
  }

  @Test func `a cancelled run ends while its store is unavailable`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.open()
    await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try? await clock.sleep(for: .seconds(5))
      store.cutOff(throwing: TransientFault())
      queue.core.dispatch.lookForWork()
      try? await clock.sleep(for: .seconds(5))
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    #expect(clock.now.offset == .seconds(10))
  }

  @Test func `a shutdown waits for the store up to its limit, and then reports unstored results`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("5"))
    await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try? await clock.sleep(for: .seconds(1))
      store.cutOff(throwing: TransientFault())
      try? await clock.sleep(for: .seconds(10))
      await queue.shutDown(within: .seconds(60))
      let error = await #expect(throws: TaskQueueError.self) { try await group.waitForAll() }
      #expect(error?.code == .storeFailed)
      #expect(error?.underlying is TransientFault)
    }
    #expect(clock.now.offset == .seconds(71))
    store.restore()
    #expect(try await task.record()?.state == .running)
  }

  @Test func `a shutdown without a limit waits until the results are stored`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("5"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      store.cutOff(throwing: TransientFault())
      group.addTask { await queue.shutDown() }
      try await clock.sleep(for: .seconds(600))
      store.restore()
      try await group.waitForAll()
    }
    #expect(try await task.record() == nil)
  }

  /// Restores the store after 10 minutes, so that a failing test doesn't wait forever.
  private func restoreAfterTenMinutes(_ store: FaultInjectingStore) async {
    try? await clock.sleep(for: .seconds(600))
    store.restore()
  }

  /// A run reads its values before its first claim, and makes the other calls during that claim.
  @Test(arguments: ["value", "count", "rebase"])
  func `a queue that maintains its stored data shuts down while its store is unavailable`(
    kind: String
  ) async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Note("1"), delay: .seconds(3_600))
    store.inject(.transientError, times: nil) {
      $0.kind.rawValue == kind || $0.changes.contains(kind)
    }
    async let _ = restoreAfterTenMinutes(store)
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(5))
    queue.beginShutDown()
    try await run
    #expect(clock.now.offset == .seconds(5))
  }

  @Test func `a run that starts while its store is unavailable respects a shutdown's limit`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    try await queue.enqueue(Note("0"))
    store.inject(.error(Refusal("the disk is full"))) { $0.changes.contains("succeed") }
    let first = await queueError { try await queue.runAvailable() }
    #expect(first?.code == .storeFailed)
    // The next run stores the remaining result before it does anything else.
    store.inject(.transientError, times: nil) { $0.changes.contains("succeed") }
    async let _ = restoreAfterTenMinutes(store)
    async let error = queueError { try await queue.run() }
    try await clock.sleep(for: .seconds(1))
    queue.beginShutDown(within: .seconds(5))
    #expect(await error?.code == .storeFailed)
    #expect(clock.now.offset == .seconds(6))
  }

  @Test func `a run that starts while its store is unavailable waits for the store`() async throws {
    let store = FaultInjectingStore()
    store.cutOff(throwing: TransientFault())
    let queue = await makeQueue(on: store)
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(30))
    store.restore()
    let task = try await queue.enqueue(Note("1"))
    #expect(try await task.outcome() == .succeeded)
    await queue.shutDown()
    try await run
  }
}
