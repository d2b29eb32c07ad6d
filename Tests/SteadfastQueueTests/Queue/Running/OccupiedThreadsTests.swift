import Dispatch
import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests queues while handlers compute or block, and so occupy all threads of Swift's executor.
///
/// Each test is brief, because all other tests need these threads.
@Suite(.serialized) struct OccupiedThreadsTests {
  /// Blocks threads for up to 20 seconds, until the gate is opened.
  private final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func open() { semaphore.signal() }

    /// - Returns: Whether the gate was opened.
    func blockUntilOpen() -> Bool {
      defer { semaphore.signal() }
      return semaphore.wait(timeout: .now() + .seconds(20)) == .success
    }
  }

  /// A store that calls a closure whenever leases are extended.
  private struct Extensions: ForwardingStore {
    let base: any Persistence
    let onExtension: @Sendable () -> Void

    func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
      if case .extend? = batch.first { onExtension() }
      return try await base.apply(batch, durability: durability)
    }
  }

  private static let handlerCount = 2 * ProcessInfo.processInfo.activeProcessorCount

  private static func makeQueue(on store: some Persistence = InMemoryStore()) -> TaskQueue {
    TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: handlerCount)
    )
  }

  private static let notes = (0..<handlerCount).map { Note("\($0)") }

  /// Keeps the thread busy for up to 20 seconds, until the Swift task is cancelled.
  ///
  /// - Returns: Whether the Swift task was cancelled.
  private static func computeUntilCancelled() -> Bool {
    let end = ContinuousClock.now + .seconds(20)
    while !Task.isCancelled, ContinuousClock.now < end { sched_yield() }
    return Task.isCancelled
  }

  @Test func `leases are extended while handlers occupy all threads`() async throws {
    let gate = Gate()
    let count = Atomic(0)
    let store = SharedStore(StoreSharing(leaseDuration: .milliseconds(60)))
    let queue = Self.makeQueue(
      on: Extensions(base: store.process()) {
        // At the seventh extension, more than two lease durations have passed.
        if count.add(1, ordering: .relaxed).newValue == 7 { gate.open() }
      }
    )
    await queue.register(Note.self) { _, _ in
      guard gate.blockUntilOpen() else { throw Refusal("its lease was not extended") }
    }
    let tasks = try await queue.enqueue(contentsOf: Self.notes, options: TaskOptions(maxRetries: 0))
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
  }

  @Test func `attempts are cut short after the limit of a shutdown`() async throws {
    let queue = Self.makeQueue()
    await queue.register(Note.self) { _, _ in
      queue.beginShutDown(within: .milliseconds(20))
      guard Self.computeUntilCancelled() else { return }
      throw CancellationError()
    }
    try await queue.enqueue(contentsOf: Self.notes)
    try await queue.run()
    #expect(try await queue.count == Self.handlerCount)
    #expect(try await queue.count(matching: .retrying) == 0)
  }

  @Test func `attempts are cut short after their time limit`() async throws {
    let queue = Self.makeQueue()
    await queue.register(Note.self) { _, _ in _ = Self.computeUntilCancelled() }
    let options = TaskOptions(maxRetries: 0, timeLimit: .milliseconds(20))
    let tasks = try await queue.enqueue(contentsOf: Self.notes, options: options)
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        guard case .abandoned(let reason) = outcome else {
          Issue.record("the attempt was not cut short: \(outcome)")
          continue
        }
        #expect(reason.contains("did not end within"))
      }
    }
  }

  @Test func `a time limit starts when the handler starts`() async throws {
    let queue = Self.makeQueue()
    await queue.register(Note.self) { _, _ in
      // The other handlers start when a thread is free.
      let end = ContinuousClock.now + .milliseconds(60)
      while ContinuousClock.now < end { sched_yield() }
    }
    let options = TaskOptions(maxRetries: 0, timeLimit: .seconds(10))
    let tasks = try await queue.enqueue(contentsOf: Self.notes, options: options)
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
  }

  @Test func `attempts are cut short when the time of a run is up`() async throws {
    let queue = Self.makeQueue()
    await queue.register(Note.self) { _, _ in
      guard Self.computeUntilCancelled() else { return }
      throw CancellationError()
    }
    try await queue.enqueue(contentsOf: Self.notes)
    _ = try await queue.run(within: .milliseconds(40))
    #expect(try await queue.count == Self.handlerCount)
    #expect(try await queue.count(matching: .retrying) == 0)
  }
}
