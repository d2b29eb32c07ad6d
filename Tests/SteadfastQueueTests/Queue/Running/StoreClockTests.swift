import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests queues with different clocks on one store, and stores that rarely look for expired leases.
@Suite(.virtualTime) struct StoreClockTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue whose clock is ahead.
  ///
  /// Each task takes the number of seconds in its text.
  private func makeQueue(
    named name: String,
    on store: any Persistence,
    ahead seconds: Double = 0
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      clock: SkewedClock(base: clock, seconds: seconds)
    )
    await queue.register(Note.self) { [clock, log] note, context in
      let date = clock.now.offset.components.seconds
      log.add("\(name) begins \(note.text) (\(context.interruptionCount)) at \(date)")
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
      log.add("\(name) ends \(note.text)")
    }
    return queue
  }

  @Test(arguments: [61.0, -61, 86_400])
  func `queues with different clocks don't claim each other's running tasks`(
    seconds: Double
  ) async throws {
    let store = SharedStore(StoreSharing(leaseDuration: .seconds(60)))
    let a = await makeQueue(named: "a", on: store.process())
    let b = await makeQueue(named: "b", on: store.process(), ahead: seconds)
    let task = try await a.enqueue(Note("600"))
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      try await withRunning(b) { _ = try await task.outcome() }
    }
    #expect(log.entries == ["a begins 600 (0) at 0", "a ends 600"])
  }

  @Test(arguments: [61.0, -61])
  func `a lease of a terminated process expires by the store's clock`(
    seconds: Double
  ) async throws {
    let store = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(3600))
    )
    let dying = store.process()
    let a = await makeQueue(named: "a", on: dying)
    let b = await makeQueue(named: "b", on: store.process(), ahead: seconds)
    try await a.enqueue(Note("30"))
    await withThrowingTaskGroup { group in
      group.addTask { try await a.run() }
      try? await clock.sleep(for: .seconds(1))
      dying.die()
      try? await withRunning(b) { try await clock.sleep(for: .seconds(200)) }
      group.cancelAll()
      dying.revive()
    }
    // A claim's next date uses the clock of the claiming queue, which needn't poll. With a slow
    // clock, the task is available a second later.
    let date = seconds < 0 ? 61 : 60
    #expect(log.entries.contains("b begins 30 (1) at \(date)"), "\(log.entries)")
    #expect(log.entries.count { $0.hasPrefix("b begins") } == 1)
  }

  @Test
  func `a store that rarely looks for expired leases loses nothing, and isn't polled constantly`()
    async throws
  {
    let store = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(3600)),
      looksSeldom: true
    )
    let dying = store.process()
    let a = await makeQueue(named: "a", on: dying)
    let counted = FaultInjectingStore(store.process())
    let b = await makeQueue(named: "b", on: counted)
    try await a.enqueue(contentsOf: ["30", "2", "2"].map(Note.init))
    try await a.enqueue(Note("1"), options: TaskOptions(delay: .seconds(300)))
    await withThrowingTaskGroup { group in
      group.addTask { try await a.run() }
      try? await clock.sleep(for: .seconds(1))
      dying.die()
      try? await withRunning(b) { try await clock.sleep(for: .seconds(400)) }
      group.cancelAll()
      dying.revive()
    }
    let begun = log.entries.filter { $0.hasPrefix("b begins") }
    #expect(begun.count == 4, "\(begun)")
    #expect(begun.contains("b begins 1 (0) at 300"))
    let date = begun.first { $0.hasPrefix("b begins 30 (1)") }?.split(separator: " ").last
    #expect(date.flatMap { Int($0) }.map { 60...81 ~= $0 } == true, "\(begun)")
    #expect(counted.calls.count { $0.kind == .claim } < 40)
  }

  @Test(arguments: StoreKind.allCases)
  func `a store that always requests another claim is called once a second`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let counted = FaultInjectingStore(Hasty(base: store))
      let queue = await makeQueue(named: "a", on: counted)
      try await queue.enqueue(contentsOf: (0..<20).map { _ in Note("0") })
      try await queue.enqueue(Note("1"), options: TaskOptions(delay: .milliseconds(30_500)))
      try await withRunning(queue) { try await clock.sleep(for: .seconds(100)) }
      #expect(try await queue.count == 0)
      #expect(log.entries.count == 42)
      let claims = counted.calls.count { $0.kind == .claim }
      // There is one claim per task, one per second, and a few more after each task.
      #expect(claims < 20 + 100 + 25, "\(claims) claims")
    }
  }

  @Test func `a pass ends even if the store always requests another claim`() async throws {
    let counted = FaultInjectingStore(Hasty(base: InMemoryStore()))
    let queue = await makeQueue(named: "a", on: counted)
    try await queue.enqueue(contentsOf: (0..<20).map { _ in Note("0") })
    #expect(try await queue.runAvailable() == 20)
    #expect(counted.calls.count { $0.kind == .claim } <= 21)
  }
}

/// A store that always requests another claim at once.
private struct Hasty: ForwardingStore {
  let base: any Persistence

  func claim(_ request: ClaimRequest) async throws -> Claim {
    var claim = try await base.claim(request)
    claim.nextDate = request.now
    return claim
  }
}
