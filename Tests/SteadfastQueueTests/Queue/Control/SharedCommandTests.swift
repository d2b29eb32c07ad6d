import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests commands for tasks that another process performs.
@Suite(.virtualTime) struct SharedCommandTests {
  private let clock: VirtualClock
  private let store = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(1000)),
    givesHints: true
  )
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue whose handler sleeps, logs what happens to it, and throws an error of its own if
  /// it is cancelled.
  private func makeQueue(
    _ name: String,
    on process: SharedStore.Process,
    sleeping duration: Duration = .seconds(500)
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: process,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 50, cancelledRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] note, _ in
      log.add("\(name) begins \(note.text)")
      do {
        try await clock.sleep(for: duration)
      } catch {
        log.add("\(name) is cut short at \(clock.now.offset.components.seconds)")
        throw Refusal()
      }
      log.add("\(name) ends \(note.text)")
    }
    return queue
  }

  private func makeCaller() -> TaskQueue {
    TaskQueue(
      persistence: store.process(),
      configuration: TaskQueueConfiguration(cancelledRetention: .forever),
      clock: clock
    )
  }

  @Test func `another process cancels an attempt at once, by a hint`() async throws {
    let performer = await makeQueue("a", on: store.process())
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    let events = performer.events
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await task.cancel())
      try await clock.sleep(for: .seconds(1))
      let record = try #require(try await task.record())
      #expect(record.state == .cancelled)
      #expect(record.command == nil && record.retryCount == 0)
      #expect(log.entries == ["a begins 1", "a is cut short at 10"])
    }
    var names: [String] = []
    for await event in events { if case .cancelled(let id) = event { names.append("\(id)") } }
    #expect(names == ["\(task.id)"])
  }

  @Test func `without hints, the next extension of the claims cancels the attempt`() async throws {
    let store = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(1000))
    )
    let performer = await makeQueue("a", on: store.process())
    let caller = TaskQueue(persistence: store.process(), clock: clock)
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await task.cancel())
      let command = try await task.record()?.command
      #expect(command == .cancel)
      try await clock.sleep(for: .seconds(11))
      #expect(log.entries == ["a begins 1", "a is cut short at 20"])
      #expect(try await task.record()?.state == .cancelled)
    }
  }

  @Test func `another process pauses, retries and removes running tasks`() async throws {
    let performer = await makeQueue("a", on: store.process())
    let caller = makeCaller()
    let tasks = try await caller.enqueue(contentsOf: ["1", "2", "3"].map { Note($0) })
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await caller.pause(tasks[0].id))
      #expect(try await caller.retry(tasks[1].id))
      #expect(try await caller.remove(tasks[2].id))
      try await clock.sleep(for: .seconds(1))
      #expect(try await tasks[0].record()?.state == .paused)
      #expect(try await tasks[1].record()?.state == .running)
      #expect(try await tasks[1].record()?.retryCount == 0)
      #expect(try await tasks[2].record() == nil)
      #expect(log.entries.filter { $0.hasPrefix("a begins 2") }.count == 2)
      #expect(log.entries.count { $0.contains("cut short") } == 3)
    }
  }

  @Test func `a filter reaches all tasks that other processes perform`() async throws {
    let performer = await makeQueue("a", on: store.process())
    let caller = makeCaller()
    let tasks = try await caller.enqueue(contentsOf: (1...60).map { Note("\($0)") })
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      // Fifty of them run, and ten wait.
      #expect(try await caller.cancel(matching: .unfinished) == 60)
      try await clock.sleep(for: .seconds(1))
      #expect(try await caller.count(matching: TaskFilter(states: [.cancelled])) == 60)
      #expect(try await caller.cancel(matching: .unfinished) == 0)
    }
    #expect(log.entries.count { $0.contains("cut short") } == 50)
    #expect(tasks.count == 60)
  }

  @Test func `a handler that returns in spite of the command has succeeded`() async throws {
    let performer = TaskQueue(persistence: store.process(), clock: clock)
    await performer.register(Note.self) { [clock, log] _, _ in
      try? await clock.sleep(for: .seconds(500))
      log.add("returns at \(clock.now.offset.components.seconds)")
    }
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await task.cancel())
      try await clock.sleep(for: .seconds(1))
      #expect(log.entries == ["returns at 10"])
      #expect(try await task.record() == nil)
    }
  }

  @Test func `a command that comes when the handler has ended is carried out`() async throws {
    let process = store.process()
    let slow = FaultInjectingStore(process)
    let performer = TaskQueue(persistence: slow, clock: clock)
    await performer.register(Note.self) { _, _ in throw Refusal() }
    let caller = makeCaller()
    // The result of the attempt arrives in the store after the command.
    slow.inject(.delay(.seconds(5), on: clock), .beforeEffect) { call in
      call.changes.contains { $0.move?.kind == .retry }
    }
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.cancel())
      try await clock.sleep(for: .seconds(10))
      #expect(try await task.record() == nil)
    }
    #expect(slow.calls.count { $0.changes.contains { $0.end?.state == .cancelled } } == 1)
  }

  @Test func `the last command counts, and one that has no effect is refused`() async throws {
    let performer = await makeQueue("a", on: store.process())
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    let process = store.process()
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      let commands: [(StoredCommand?, StoredCommand?)] = [(nil, .pause), (.pause, .cancel)]
      for (old, new) in commands {
        let outcome = try await process.apply(
          [.command(task.id, from: old, to: new)],
          durability: .durable
        )
        #expect(outcome == [.done])
      }
      #expect(try await !caller.pause(task.id))
      #expect(try await !caller.reschedule(task.id, to: clock.date + 100))
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.record()?.state == .cancelled)
    }
  }

  @Test func `another process withdraws the command to pause a task`() async throws {
    // No hint tells the process of the commands before the second one is stored.
    let store = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(1000))
    )
    let performer = await makeQueue("a", on: store.process())
    let caller = TaskQueue(persistence: store.process(), clock: clock)
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await caller.pause(task.id))
      #expect(try await caller.resume(task.id))
      #expect(try await !caller.resume(task.id))
      #expect(try await task.record()?.command == .release)
      try await clock.sleep(for: .seconds(11))
      // The process learns only of the withdrawal, so the attempt goes on.
      #expect(try await task.record()?.state == .running)
      #expect(log.entries == ["a begins 1"])
    }
  }

  /// Holds handlers, also cancelled ones, until it is open.
  private final class Gate: Sendable {
    private struct State {
      var isOpen = false
      var callers: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    func pass() async {
      await withCheckedContinuation { caller in
        let isOpen = state.withLock { state in
          if !state.isOpen { state.callers.append(caller) }
          return state.isOpen
        }
        if isOpen { caller.resume() }
      }
    }

    func open() {
      let callers = state.withLock { state in
        state.isOpen = true
        return state.callers
      }
      for caller in callers { caller.resume() }
    }
  }

  /// Makes a queue whose cancelled handler stops when the gate is open.
  private func makeSlowQueue(_ gate: Gate) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store.process(),
      configuration: TaskQueueConfiguration(cancelledRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] _, _ in
      log.add("begins")
      do {
        try await clock.sleep(for: .seconds(500))
      } catch {
        await gate.pass()
        throw error
      }
    }
    return queue
  }

  @Test(arguments: [StoredCommand.restart, .remove])
  func `a command replaces one because of which the handler is already stopping`(
    last: StoredCommand
  ) async throws {
    let gate = Gate()
    let performer = await makeSlowQueue(gate)
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await caller.cancel(task.id))
      try await clock.sleep(for: .seconds(1))
      if last == .restart {
        #expect(try await caller.retry(task.id))
      } else {
        #expect(try await caller.remove(task.id))
      }
      try await clock.sleep(for: .seconds(1))
      gate.open()
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.record()?.state == (last == .restart ? .running : nil))
      #expect(log.entries.count == (last == .restart ? 2 : 1))
    }
  }

  @Test(arguments: [false, true])
  func `the process that performs the task replaces a stored command, too`(
    hasSeenCommand: Bool
  ) async throws {
    let gate = Gate()
    let performer = await makeSlowQueue(gate)
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await caller.cancel(task.id))
      if hasSeenCommand { try await clock.sleep(for: .seconds(1)) }
      #expect(try await !performer.pause(task.id))
      #expect(try await performer.retry(task.id))
      try await clock.sleep(for: .seconds(1))
      gate.open()
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.record()?.state == .running)
      #expect(log.entries.count == 2)
    }
  }

  @Test func `a command that waits for the next claim prevents weaker ones`() async throws {
    let process = store.process()
    let performer = await makeQueue("a", on: process)
    let caller = makeCaller()
    let tasks = try await caller.enqueue(contentsOf: ["1", "2"].map { Note($0) })
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      process.die()
      #expect(try await caller.cancel(tasks[0].id))
      #expect(try await caller.pause(tasks[1].id))
      try await clock.sleep(for: .seconds(100))
      // A claim of other tasks ends the claims that have expired.
      let other = ClaimRequest(
        limit: 1,
        names: ["other": 1],
        now: clock.date,
        leaseDuration: .seconds(60)
      )
      #expect(try await store.process().claim(other).tasks.isEmpty)
      #expect(try await tasks[0].record()?.state == .waiting)
      #expect(try await !caller.pause(tasks[0].id))
      #expect(try await !caller.reschedule(tasks[0].id, to: clock.date + 100))
      let ids = TaskFilter(ids: [tasks[0].id])
      #expect(try await caller.reschedule(matching: ids, to: clock.date + 100) == 0)
      #expect(try await tasks[0].record()?.command == .cancel)
      #expect(try await caller.resume(tasks[1].id))
      #expect(try await tasks[1].record()?.command == nil)
      #expect(try await caller.cancel(tasks[0].id))
      #expect(try await tasks[0].record()?.state == .cancelled)
      process.revive()
    }
  }

  @Test func `the process itself can withdraw the command of another one`() async throws {
    let performer = await makeQueue("a", on: store.process(), sleeping: .seconds(500))
    let caller = makeCaller()
    let task = try await caller.enqueue(Note("1"))
    let process = store.process()
    try await withRunning(performer) {
      try await clock.sleep(for: .seconds(10))
      _ = try await process.apply(
        [.command(task.id, from: nil, to: .pause)],
        durability: .durable
      )
      #expect(try await performer.resume(task.id))
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.record()?.state == .running)
    }
  }

  @Test func `if the process ends first, the next one carries the command out`() async throws {
    let process = store.process()
    let first = await makeQueue("a", on: process)
    let second = await makeQueue("b", on: store.process())
    let caller = makeCaller()
    let tasks = try await caller.enqueue(contentsOf: ["1", "2"].map { Note($0) })
    try await withRunning(first) {
      try await clock.sleep(for: .seconds(10))
      process.die()
      #expect(try await tasks[0].cancel())
      #expect(try await caller.pause(tasks[1].id))
      try await withRunning(second) {
        try await clock.sleep(for: .seconds(100))
        #expect(try await tasks[0].record()?.state == .cancelled)
        #expect(try await tasks[1].record()?.state == .paused)
        #expect(log.entries.count { $0.hasPrefix("b") } == 0)
      }
      process.revive()
    }
  }

  @Test func `a command does not count towards a rate limit`() async throws {
    let process = store.process()
    let first = await makeQueue("a", on: process)
    let second = TaskQueue(
      persistence: store.process(),
      configuration: TaskQueueConfiguration(rateLimits: [.atMost(1, per: .seconds(10_000))]),
      clock: clock
    )
    await second.register(Note.self) { [log] note, _ in log.add("b begins \(note.text)") }
    let caller = makeCaller()
    let tasks = try await caller.enqueue(contentsOf: ["1", "2"].map { Note($0) })
    try await withRunning(first) {
      try await clock.sleep(for: .seconds(10))
      process.die()
      #expect(try await tasks[0].cancel())
      try await withRunning(second) {
        try await clock.sleep(for: .seconds(100))
        #expect(try await tasks[0].record() == nil)
        #expect(try await tasks[1].record() == nil)
        #expect(log.entries.filter { $0.hasPrefix("b") } == ["b begins 2"])
      }
      process.revive()
    }
  }
}
