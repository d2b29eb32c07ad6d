import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests changes that are sent to the store again after transient errors.
@Suite(.virtualTime) struct ResentChangeTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: some Persistence) async -> TaskQueue {
    let configuration = TaskQueueConfiguration(
      maxConcurrentTasks: 2,
      backoff: .constant(.seconds(1)),
      cancelledRetention: .forever
    )
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    await queue.register(Note.self) { [clock, log] note, context in
      log.add(note.text)
      switch note.text {
      case "fails once": if context.retryCount == 0 { throw Refusal() }
      case "is abandoned": throw TaskAbandoned("no")
      case "takes long": try await clock.sleep(for: .seconds(60))
      default: break
      }
      return note.text
    }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `a new task whose insertion is sent again is stored once`(kind: StoreKind) async throws {
    try await kind.withStore { base in
      let store = FaultInjectingStore(base)
      store.inject(.transientError, times: 2) { $0.changes.contains("insert") }
      let queue = await makeQueue(on: store)
      let task = try await queue.enqueue(Note("a"))
      #expect(task.isNew)
      #expect(try await queue.tasks().map(\.id) == [task.id])
      #expect(try await queue.runAvailable() == 1)
      #expect(log.entries == ["a"])
      #expect(store.calls.count { $0.changes.contains("insert") } == 3)
    }
  }

  @Test(arguments: [UniquePolicy.keep, .reject, .join, .replace])
  func `a new task with a key whose insertion is sent again is stored once`(
    policy: UniquePolicy
  ) async throws {
    let store = FaultInjectingStore()
    store.inject(.transientError, times: 2) { $0.changes.contains("insert") }
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("a"), uniqueKey: "k", onDuplicate: policy)
    #expect(task.isNew)
    #expect(try await queue.tasks().map(\.id) == [task.id])
  }

  @Test func `a sealed task is stored once, even if it is sealed again`() async throws {
    let faulty = FaultInjectingStore()
    faulty.inject(.transientError, times: 2) { $0.changes.contains("insert") }
    let queue = await makeQueue(on: faulty.sealingPayloads(with: TestSeal().payloadSeal))
    let tasks = try await queue.enqueue(contentsOf: ["a", "b"].map(Note.init))
    #expect(try await queue.tasks().map(\.id) == tasks.map(\.id))
    #expect(try await queue.runAvailable() == 2)
    #expect(log.entries == ["a", "b"])
  }

  @Test(arguments: ["succeed", "retry", "abandon"])
  func `the result of an attempt is stored and reported once`(kind: String) async throws {
    for base in [InMemoryStore() as any Persistence, SharedStore().process()] {
      let store = FaultInjectingStore(base)
      store.inject(.transientError, times: 2) { $0.changes.contains(kind) }
      let queue = await makeQueue(on: store)
      let events = queue.events
      let tasks = try await queue.enqueue(
        contentsOf: ["succeeds", "fails once", "is abandoned"].map(Note.init)
      )
      try await withRunning(queue) {
        let value = try await tasks[0].value(as: String.self)
        #expect(value == "succeeds")
        #expect(try await tasks[1].outcome() == .succeeded)
        #expect(try await tasks[2].outcome() == .abandoned(reason: "no"))
      }
      let statistics = try await queue.statistics
      #expect(statistics.succeeded == 2 && statistics.failed == 1 && statistics.abandoned == 1)
      #expect(statistics.attempts == 4)
      var ends = 0
      for await event in events {
        switch event {
        case .succeeded, .failed, .abandoned: ends += 1
        default: break
        }
      }
      #expect(ends == 4)
    }
  }

  @Test
  func `a result stored after its lease expired is discarded, and the other queue's result counts`()
    async throws
  {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60)))
    let store = FaultInjectingStore(shared.process())
    let (a, b) = (await makeQueue(on: store), await makeQueue(on: shared.process()))
    try await a.enqueue(Note("takes long"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(30))
      store.cutOff(throwing: TransientFault())
      try await withRunning(b) {
        try await clock.sleep(for: .seconds(300))
        store.restore()
        try await clock.sleep(for: .seconds(30))
      }
      #expect(try await a.statistics.succeeded == 0)
      #expect(try await b.statistics.succeeded == 1)
      #expect(try await b.count == 0)
    }
  }

  @Test func `a running task is cancelled once, and the run continues`() async throws {
    let store = FaultInjectingStore()
    store.inject(.transientError, times: 3) { $0.changes.contains("cancel") }
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("takes long"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await queue.cancel(task.id))
      #expect(try await task.outcome() == .cancelled)
      #expect(clock.now.offset < .seconds(10))
      let next = try await queue.enqueue(Note("a"))
      #expect(try await next.outcome() == .succeeded)
    }
  }

  @Test func `commands for a waiting task are carried out and reported once`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    let events = queue.events
    let task = try await queue.enqueue(Note("a"), delay: .seconds(60))
    for kind in ["pause", "resume", "reschedule", "restart", "cancel"] {
      store.inject(.transientError, times: 2) { $0.changes.contains(kind) }
    }
    #expect(try await queue.pause(task.id))
    #expect(try await task.record()?.state == .paused)
    #expect(try await queue.resume(task.id))
    #expect(try await queue.reschedule(task.id, to: clock.date + 30))
    #expect(try await queue.retry(task.id))
    #expect(try await queue.cancel(task.id))
    #expect(try await task.outcome() == .cancelled)
    await queue.shutDown()
    var reported: [String] = []
    for await event in events {
      switch event {
      case .storeUnavailable: break
      default: reported.append("\(event)".prefix { $0.isLetter }.description)
      }
    }
    #expect(reported == ["enqueued", "paused", "resumed", "rescheduled", "retried", "cancelled"])
  }

  @Test func `a change of a value is repeated, even if it compares the value`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(on: store)
    store.inject(.transientError, times: 2) { $0.changes.contains("setValue") }
    try await queue.setValue([1], named: "a")
    #expect(try await queue.value(named: "a") == [1])
    store.inject(.transientError, times: 2) { $0.changes.contains("setValue") }
    #expect(try await queue.setValue([2], named: "a", replacing: [1]))
    #expect(try await queue.value(named: "a") == [2])
    store.inject(.transientError, times: 2) { $0.changes.contains("setValue") }
    try await queue.pause(durability: .durable)
    #expect(try await queue.value(named: "a") != nil)
    try await queue.resume(durability: .durable)
  }

  @Test
  func `if a claim's result is lost, the claimed tasks are performed after their lease expires`()
    async throws
  {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60)))
    let store = FaultInjectingStore(shared.process())
    store.inject(.transientError, .afterEffect) { $0.kind == .claim }
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      let outcome = try await task.outcome()
      #expect(outcome == .succeeded && clock.now.offset >= .seconds(60))
    }
    #expect(log.entries == ["a"])
  }
}
