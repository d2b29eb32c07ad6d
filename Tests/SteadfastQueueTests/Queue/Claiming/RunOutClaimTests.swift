import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests tasks whose lease expires before a worker starts them.
@Suite(.virtualTime) struct RunOutClaimTests {
  private let clock: VirtualClock
  private let store = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5))
  )
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// A queue whose attempts take a minute and a half.
  private func makeQueue(
    named name: String,
    on persistence: any Persistence,
    limits: [RateLimit] = []
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: persistence,
      configuration: TaskQueueConfiguration(rateLimits: limits),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] note, _ in
      log.add("\(name) begins \(note.text) at \(clock.now.offset.components.seconds)")
      try await clock.sleep(for: .seconds(90))
    }
    return queue
  }

  /// Makes a process whose first claim returns after a delay.
  private func makeProcess(answeringFirstClaimAfter seconds: Int) -> FaultInjectingStore {
    let slow = FaultInjectingStore(store.process())
    slow.inject(.delay(.seconds(seconds), on: clock), .afterEffect) { $0.kind == .claim }
    return slow
  }

  /// Runs a queue with a slow store, and expects that another queue performs the task instead.
  private func expectTakeover(from slow: some Persistence, limits: [RateLimit]) async throws {
    let a = await makeQueue(named: "a", on: slow, limits: limits)
    let b = await makeQueue(named: "b", on: store.process())
    let task = try await b.enqueue(Note("1"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      try await withRunning(b) { try await b.waitUntilRemoved(task.id, on: clock) }
    }
    #expect(log.entries == ["b begins 1 at 60"])
  }

  @Test(arguments: [false, true])
  func `a task doesn't start if its lease expires before the claim returns`(isLimited: Bool)
    async throws
  {
    let limits: [RateLimit] = isLimited ? [.atMost(5, per: .seconds(1))] : []
    try await expectTakeover(from: makeProcess(answeringFirstClaimAfter: 70), limits: limits)
  }

  @Test func `a task doesn't start if its lease expires while its start is being counted`()
    async throws
  {
    let slow = FaultInjectingStore(store.process())
    // The claim returns in time, but the call that stores the start returns too late.
    slow.inject(.delay(.seconds(70), on: clock), .afterEffect) {
      $0.changes.contains(where: \.storesStarts)
    }
    try await expectTakeover(from: slow, limits: [.atMost(5, per: .seconds(1))])
  }

  @Test func `a pass performs a task with an expired lease unless another queue has claimed it`()
    async throws
  {
    let a = await makeQueue(named: "a", on: makeProcess(answeringFirstClaimAfter: 70))
    let task = try await a.enqueue(Note("1"))
    await a.register(Note.self) { [log] note, context in
      log.add("begins \(note.text), interrupted \(context.interruptionCount) times")
    }
    #expect(try await a.runAvailable() == 1)
    #expect(log.entries == ["begins 1, interrupted 0 times"])
    #expect(try await !a.contains(task.id))
  }

  @Test func `a command for a task that is being released is carried out`() async throws {
    let slow = makeProcess(answeringFirstClaimAfter: 70)
    slow.inject(.delay(.seconds(5), on: clock), .afterEffect) { $0.changes.contains("release") }
    let a = await makeQueue(named: "a", on: slow)
    let task = try await a.enqueue(Note("1"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(71))
      try await a.cancel(task.id)
      #expect(try await task.outcome() == .cancelled)
    }
    #expect(log.entries == [])
  }

  @Test func `a claim that returns in time is used`() async throws {
    let a = await makeQueue(named: "a", on: makeProcess(answeringFirstClaimAfter: 59))
    try await a.enqueue(Note("1"))
    try await a.runAvailable()
    #expect(log.entries == ["a begins 1 at 59"])
  }

  // MARK: In the machine

  @Test func `a worker releases tasks with an expired lease, and claims again`() {
    var machine = WorkMachine(workers: 2)
    machine.begin(.untilStopped, names: [String](), claimBatch: 64)
    machine.prefetch.addDuration(.zero)
    #expect(machine.next(at: .seconds(1)).summary == "claim 64")
    _ = machine.receive(.numbered(1, 2, 3), now: .seconds(0), until: .seconds(61))
    #expect(machine.next(at: .seconds(60)).summary == "perform 1, wake another")
    #expect(machine.next(at: .seconds(61)).summary == "put back 2 3")
    #expect(machine.performing == 2)
    #expect(machine.isBeingReleased(.numbered(2)) && machine.isBeingReleased(.numbered(3)))
    _ = machine.finishRelease(of: Claim.numbered(2, 3).tasks)
    machine.endReleaseByWorker()
    #expect(machine.performing == 1)
    #expect(machine.next(at: .seconds(61)).summary == "claim 64")
    // The lease of the next claim doesn't expire.
    _ = machine.receive(.numbered(4), now: .seconds(0))
    #expect(machine.next(at: .seconds(1000)).summary == "perform 4")
  }

  @Test func `a pass doesn't end while a worker releases tasks`() {
    var machine = WorkMachine.running(.pass(cutoff: .seconds(0)))
    _ = machine.next()
    _ = machine.receive(.numbered(1), now: .seconds(0), until: .seconds(60))
    #expect(machine.next(for: 0, at: .seconds(60)).summary == "put back 1")
    #expect(machine.next(for: 1, at: .seconds(60)).summary == "claim 1")
    _ = machine.receive(Claim(tasks: [], nextDate: nil), now: .seconds(0))
    #expect(machine.next(for: 1, at: .seconds(60)).summary == "wait")
    machine.endReleaseByWorker()
    #expect(machine.next(for: 0, at: .seconds(60)).summary == "stop")
  }
}
