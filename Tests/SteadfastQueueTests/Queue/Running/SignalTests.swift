import Dispatch
import SteadfastTesting
import Synchronization
import SystemC
import TestSupport
import Testing

@testable import SteadfastQueue

/// The number of signals that a handler of C has got.
private let hangups = Atomic(0)

/// Tests runs that end at a signal to the process.
///
/// They use a signal that ends a process only if nothing watches it, and are serialized because the
/// whole process has it.
@Suite(.serialized, .timeLimit(.minutes(1))) struct SignalTests {
  private func makeQueue() -> TaskQueue { TaskQueue(persistence: InMemoryStore()) }

  @Test func `a signal ends a run within the limit, and no retry is counted`() async throws {
    let queue = makeQueue()
    let signals = Log<Int>()
    await queue.register(Note.self) { _, _ in
      #expect(kill(getpid(), SIGHUP) == 0)
      for await _ in AsyncStream<Void>.makeStream().stream {}
      try Task.checkCancellation()
    }
    try await queue.enqueue(Note("a"))
    try await queue.run(stoppingOn: .sighup, within: .milliseconds(10)) { signals.add(1) }
    #expect(signals.count == 1)
    let left = try await queue.tasks()
    #expect(left.map(\.state) == [.waiting] && left.map(\.retryCount) == [0])
    // It was shut down before.
    try await queue.run(stoppingOn: .sighup, within: .zero)
    #expect(try await queue.runAvailable(stoppingOn: .sighup, within: .zero) == 0)
    await #expect(throws: TaskQueueError.self) { try await queue.run() }
  }

  @Test func `a signal ends the runs of all that watch it, and is then as before`() async throws {
    let former = signal(SIGHUP) { _ in hangups.add(1, ordering: .relaxed) }
    defer { _ = signal(SIGHUP, former) }
    let group = TaskQueueGroup(persistence: InMemoryStore())
    let member = try await group.addQueue("a")
    let queue = makeQueue()
    let begun = AsyncSignal()
    await queue.register(Note.self) { _, _ in begun.signal() }
    try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run(stoppingOn: .sighup, .sigint, within: .zero) }
      tasks.addTask { try await queue.run(stoppingOn: .sighup, .sighup, within: .zero) }
      await begun.wait()
      while member.health.phase != .running { await Task.yield() }
      #expect(kill(getpid(), SIGHUP) == 0)
      try await tasks.waitForAll()
    }
    #expect(queue.health.phase == .ended && member.health.phase == .ended)
    #expect(hangups.load(ordering: .relaxed) == 0)
    #expect(kill(getpid(), SIGHUP) == 0)
    while hangups.load(ordering: .relaxed) == 0 { await Task.yield() }
  }

  @Test func `a source of the same signal works before and after a run`() async throws {
    let (signals, continuation) = AsyncStream<Void>.makeStream()
    func waitForSignal() async {
      let source = DispatchSource.makeSignalSource(signal: SIGHUP, queue: .global())
      source.setEventHandler { @Sendable in continuation.yield() }
      await withCheckedContinuation { registration in
        source.setRegistrationHandler(handler: DispatchWorkItem { registration.resume() })
        source.activate()
      }
      #expect(kill(getpid(), SIGHUP) == 0)
      for await _ in signals { break }
      source.cancel()
    }
    await waitForSignal()
    let queue = makeQueue()
    await queue.register(Note.self) { _, _ in #expect(kill(getpid(), SIGHUP) == 0) }
    try await queue.enqueue(Note("a"))
    try await queue.run(stoppingOn: .sighup, within: .seconds(60))
    await waitForSignal()
  }

  @Test func `a run that is cancelled stops watching`() async throws {
    let queue = makeQueue()
    let begun = AsyncSignal()
    await queue.register(Note.self) { _, _ in begun.signal() }
    try await queue.enqueue(Note("a"))
    await withTaskGroup { tasks in
      tasks.addTask {
        await #expect(throws: CancellationError.self) {
          try await queue.run(stoppingOn: .sighup, within: .zero)
        }
      }
      await begun.wait()
      tasks.cancelAll()
    }
    #expect(queue.health.phase == .idle)
    #expect(try await queue.runAvailable(stoppingOn: .sighup, within: .zero) == 0)
  }

  @Test func `without a signal, a run ends as without signals`() async throws {
    let queue = makeQueue()
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    #expect(try await queue.runAvailable(stoppingOn: .sigterm, within: .seconds(1)) == 1)
  }
}
