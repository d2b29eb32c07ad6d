import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests how long calls wait for a store that is unavailable.
@Suite(.virtualTime) struct StoreTimeoutTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()
  private let notices = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence,
    storeTimeout: Duration = .seconds(30)
  ) -> TaskQueue {
    let configuration = TaskQueueConfiguration(
      storeTimeout: storeTimeout,
      notice: { [clock, notices] in
        notices.add("\(clock.now.offset.components.seconds): \($0)")
      }
    )
    return TaskQueue(
      name: "mails",
      persistence: store,
      configuration: configuration,
      clock: clock
    )
  }

  /// An error for a wrong host name.
  private struct WrongHost: PersistenceError, CustomStringConvertible {
    var isTransient: Bool { true }
    var isProbablyLasting: Bool { true }
    var description: String { "there is no host 'databse'" }
  }

  @Test(arguments: [30, 3, 0])
  func `a call from outside of a run throws the store's error after the time limit`(
    seconds: Int
  ) async throws {
    let queue = makeQueue(on: store, storeTimeout: .seconds(seconds))
    try await queue.open()
    store.cutOff(throwing: TransientFault())
    await #expect(throws: TransientFault.self) { try await queue.enqueue(Note("a")) }
    #expect(clock.now.offset == .seconds(seconds))
    await #expect(throws: TransientFault.self) { try await queue.tasks() }
    await #expect(throws: TransientFault.self) { try await queue.cancelAll() }
    #expect(clock.now.offset == .seconds(3 * seconds))
    store.restore()
    #expect(try await queue.count == 0)
  }

  @Test func `a run and the calls of its handlers wait for the store without a limit`() async throws
  {
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { [store, clock] note, context in
      guard note.text == "first" else { return }
      store.cutOff(throwing: TransientFault())
      async let second = queue.enqueue(Note("second"))
      try await clock.sleep(for: .seconds(1_000))
      store.restore()
      _ = try await second
    }
    let task = try await queue.enqueue(Note("first"))
    try await withRunning(queue) {
      #expect(try await task.outcome() == .succeeded)
      store.cutOff(throwing: TransientFault())
      try await clock.sleep(for: .seconds(1_000))
      store.restore()
      let last = try await queue.enqueue(Note("last"))
      #expect(try await last.outcome() == .succeeded)
    }
    #expect(try await queue.statistics.succeeded == 3)
  }

  @Test func `opening throws an error at once if waiting would seldom help`() async throws {
    store.inject(.error(WrongHost()), times: nil) { $0.kind == .open }
    let queue = makeQueue(on: store)
    await #expect(throws: WrongHost.self) { try await queue.open() }
    await #expect(throws: WrongHost.self) { try await queue.enqueue(Note("a")) }
    #expect(clock.now.offset == .zero)
    // The host may get its name later, so a run waits.
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(100))
    #expect(
      notices.entries == [
        "5: the queue 'mails' has waited 5 s for \(store), and goes on waiting: there is no host "
          + "'databse'"
      ]
    )
    await queue.shutDown()
    try await run
  }

  @Test func `a line names each outage once, and says when it is over`() async throws {
    let queue = makeQueue(on: store)
    await queue.register(Note.self) { _, _ in }
    let start = Log<Duration>()
    try await withRunning(queue) {
      // Too short for a line.
      store.cutOff(throwing: TransientFault())
      try await queue.waitUntilIdle(outOf: store, after: .seconds(2), on: clock)
      #expect(notices.entries.isEmpty)
      start.add(clock.now.offset)
      store.cutOff(throwing: TransientFault())
      try await queue.waitUntilIdle(outOf: store, after: .seconds(20), on: clock)
    }
    #expect(notices.count == 2)
    #expect(notices.entries[0].hasSuffix("goes on waiting: \(TransientFault())"))
    #expect(notices.entries[1].hasSuffix("the queue 'mails' has reached \(store) again"))
    let seconds = (start.entries[0] + .seconds(5)).components.seconds
    #expect(notices.entries[0].hasPrefix("\(seconds): the queue 'mails' has waited 5 s for "))
  }

  @Test func `a queue whose shutdown takes too long stops its store from waiting`() async throws {
    let patient = PatientStore()
    let queue = makeQueue(on: patient)
    await queue.register(Note.self) { [clock] _, _ in try? await clock.sleep(for: .seconds(1)) }
    try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(2))
      await queue.shutDown(within: .seconds(5))
      #expect(clock.now.offset == .seconds(7))
      await #expect(throws: TaskQueueError.self) { try await group.waitForAll() }
    }
    // Other calls may wait when the run has ended.
    #expect(patient.settings.entries == [false, true])
  }

  @Test func `a run that is cancelled, or has no time left, stops its store from waiting`()
    async throws
  {
    let patient = PatientStore()
    let queue = makeQueue(on: patient)
    await queue.register(Note.self) { [clock] _, _ in try? await clock.sleep(for: .seconds(1)) }
    try await queue.enqueue(Note("a"))
    await #expect(throws: TaskQueueError.self) { try await queue.run(within: .seconds(5)) }
    #expect(patient.settings.entries == [false, true])
    #expect(clock.now.offset == .seconds(5))
    let run = Task(executorPreference: VirtualTime.current?.executor) { try await queue.run() }
    try await clock.sleep(for: .seconds(5))
    run.cancel()
    await #expect(throws: TaskQueueError.self) { try await run.value }
    #expect(patient.settings.entries.suffix(2) == [false, true])
    #expect(clock.now.offset == .seconds(10))
  }
}

extension TaskQueue {
  /// Restores a store after a time during which the queue has tasks to perform.
  fileprivate func waitUntilIdle(
    outOf store: FaultInjectingStore,
    after time: Duration,
    on clock: VirtualClock
  ) async throws {
    async let task = enqueue(Note("a"))
    try await clock.sleep(for: time)
    store.restore()
    _ = try await task.outcome()
  }
}

/// A store that does not return from a success until it must stop waiting.
private final class PatientStore: ForwardingStore, UnsharedStore {
  let base: any Persistence = InMemoryStore()
  let use: (any StoreUse)? = nil
  let hasTransientErrors = true
  private let waiting = Mutex<CheckedContinuation<Void, Never>?>(nil)

  /// The calls of ``setWaiting(_:)``.
  let settings = Log<Bool>()

  func setWaiting(_ waits: Bool) {
    settings.add(waits)
    if !waits { waiting.withLock { $0.take() }?.resume() }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    guard batch.first?.end != nil else {
      return try await base.apply(batch, durability: durability)
    }
    await withCheckedContinuation { call in waiting.withLock { $0 = call } }
    throw Refusal("the answer is lost")
  }
}
