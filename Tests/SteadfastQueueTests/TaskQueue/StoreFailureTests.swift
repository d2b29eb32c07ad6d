import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// A store that fails from a call on, until it is mended.
private final class FailingStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  private let callsLeft: Mutex<Int>
  let appliesAtOnce: Bool

  init(callsBefore calls: Int, appliesAtOnce: Bool) {
    callsLeft = Mutex(calls)
    self.appliesAtOnce = appliesAtOnce
  }

  func mend() { callsLeft.withLock { $0 = .max } }

  private func count() throws {
    try callsLeft.withLock { left in
      guard left > 0 else { throw Refusal("the disk is on fire") }
      left -= 1
    }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try count()
    return try await base.apply(batch, durability: durability)
  }
  func claim(_ request: ClaimRequest) async throws -> Claim {
    try count()
    return try await base.claim(request)
  }
}

@Suite struct StoreFailureTests {
  /// Each number of calls after which the store may fail in the scenario, both ways of finishing.
  @Test(arguments: 5..<25, [false, true])
  func `a store that fails stops the run, and nothing is lost`(
    calls: Int,
    appliesAtOnce: Bool
  ) async throws {
    let store = FailingStore(callsBefore: calls, appliesAtOnce: appliesAtOnce)
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: VirtualClock()
    )
    let log = Log<String>()
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    let names = (1...5).map(String.init)
    for name in names { try await queue.enqueue(Note(name)) }
    do {
      try await queue.runAvailable()
    } catch let error as TaskQueueError {
      #expect(error.code == .storeFailed)
      #expect(error.message.contains("the disk is on fire"))
      #expect(!queue.isProcessing)
    }
    store.mend()
    try await queue.runAvailable()
    #expect(try await queue.count == 0)
    // What was performed and could not be kept at first was kept later, not performed again.
    #expect(log.entries.sorted() == names)
  }

  @Test func `a task that could not be stored was not enqueued`() async throws {
    let store = FailingStore(callsBefore: 0, appliesAtOnce: true)
    let queue = TaskQueue(persistence: store, clock: VirtualClock())
    let error = await #expect(throws: Refusal.self) { try await queue.enqueue(Note("lost")) }
    #expect(error?.description == "the disk is on fire")
    #expect(try await queue.count == 0)
  }
}
