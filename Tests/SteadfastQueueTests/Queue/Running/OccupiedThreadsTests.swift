import Dispatch
import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Handlers that occupy all threads on which Swift runs tasks, as those do that compute or block.
///
/// Each test does so for moments only, as all other tests need these threads.
@Suite(.serialized) struct OccupiedThreadsTests {
  /// Blocks threads until it is opened, or for 20 seconds.
  private final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func open() { semaphore.signal() }

    /// - Returns: Whether it was opened.
    func blockUntilOpen() -> Bool {
      defer { semaphore.signal() }
      return semaphore.wait(timeout: .now() + .seconds(20)) == .success
    }
  }

  /// Calls a body whenever leases are extended.
  private struct Extensions: ForwardingStore {
    let base: any Persistence
    let onExtension: @Sendable () -> Void

    func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
      if case .extend? = batch.first { onExtension() }
      return try await base.apply(batch, durability: durability)
    }
  }

  private static let handlerCount = 2 * ProcessInfo.processInfo.activeProcessorCount

  private static func queue(_ store: some Persistence = InMemoryStore()) -> TaskQueue {
    TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: handlerCount)
    )
  }

  private static let notes = (0..<handlerCount).map { Note("\($0)") }

  /// Keeps the thread busy until the task is cancelled, or for 20 seconds.
  ///
  /// - Returns: Whether the task was cancelled.
  private static func computeUntilCancelled() -> Bool {
    let end = ContinuousClock.now + .seconds(20)
    while !Task.isCancelled, ContinuousClock.now < end { sched_yield() }
    return Task.isCancelled
  }

  @Test func `claims are extended`() async throws {
    let gate = Gate()
    let count = Atomic(0)
    let store = SharedStore(StoreSharing(leaseDuration: .milliseconds(60)))
    let queue = Self.queue(
      Extensions(base: store.process()) {
        // More than two leases have passed by then.
        if count.add(1, ordering: .relaxed).newValue == 7 { gate.open() }
      }
    )
    await queue.register(Note.self) { _, _ in
      guard gate.blockUntilOpen() else { throw Refusal("its claim was not extended") }
    }
    let tasks = try await queue.enqueue(contentsOf: Self.notes, options: TaskOptions(maxRetries: 0))
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
  }

  @Test func `attempts are cut short when the limit of a shutdown has passed`() async throws {
    let queue = Self.queue()
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

  @Test func `attempts are cut short when their time limit has passed`() async throws {
    let queue = Self.queue()
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

  @Test func `a time limit begins when the handler does`() async throws {
    let queue = Self.queue()
    await queue.register(Note.self) { _, _ in
      // The others begin when a thread is free.
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
    let queue = Self.queue()
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
