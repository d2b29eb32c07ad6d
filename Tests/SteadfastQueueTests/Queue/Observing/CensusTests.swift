import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// The census of a queue and of a group, and the statistics that are based on it.
@Suite(.virtualTime) struct CensusTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore(InMemoryStore())

  init() throws { clock = try #require(VirtualTime.current).clock }

  private var lookUpCount: Int { store.calls.count { $0.kind == .census } }

  /// A group with one task in each of two queues, and one that a queue without a group has left.
  private func makeGroup() async throws -> TaskQueueGroup {
    let group = TaskQueueGroup(persistence: store, clock: clock)
    for name in ["mails", "photos", "default"] {
      try await group.addQueue(name).enqueue(Note(name))
    }
    return group
  }

  @Test func `a group counts the tasks of all queues, and a member only its own`() async throws {
    let group = try await makeGroup()
    #expect(try await group.census().rows.map(\.queue) == ["", "mails", "photos"])
    for (name, stored) in [("mails", "mails"), ("default", "")] {
      let queue = try group.queue(named: name)
      #expect(try await queue.census().rows.map(\.queue) == [stored])
      #expect(try await queue.statistics.counts == [.waiting: 1])
    }
  }

  @Test func `a queue without a group counts its own tasks`() async throws {
    _ = try await makeGroup()
    let queue = TaskQueue(name: "mails", persistence: store, clock: clock)
    try await queue.enqueue(Note("later"), delay: .seconds(60))
    let census = try await queue.census()
    #expect(census.date == clock.date)
    #expect(census.rows.map(\.queue) == ["mails"])
    #expect(census.rows.map(\.count) == [2])
    #expect(census.rows.map(\.due) == [1])
    #expect(census.rows.map(\.oldestDue) == [clock.date])
    #expect(try await queue.statistics.counts == [.waiting: 2])
  }

  @Test func `the last census is returned until it is too old`() async throws {
    let queue = TaskQueue(persistence: store, clock: clock)
    try await queue.enqueue(Note("a"))
    let first = try await queue.census()
    try await queue.enqueue(Note("b"))
    clock.advance(by: .seconds(10))
    #expect(try await queue.census() == first)
    #expect(try await queue.census(maxAge: .seconds(9)).rows.map(\.count) == [2])
    #expect(lookUpCount == 2)
    try await queue.enqueue(Note("c"))
    #expect(try await queue.census().rows.map(\.count) == [2])
    #expect(try await queue.census(maxAge: .seconds(-1)).rows.map(\.count) == [3])
  }

  @Test func `two callers at once share one look-up`() async throws {
    let queue = TaskQueue(persistence: store, clock: clock)
    try await queue.enqueue(Note("a"))
    store.inject(.hang) { $0.kind == .census }
    async let first = queue.census(maxAge: .seconds(-1))
    try await store.waitForHeldCalls()
    async let second = queue.census(maxAge: .seconds(-1))
    // The second caller waits for the first by the time this sleep ends.
    try await clock.sleep(for: .seconds(1))
    store.restore()
    let censuses = try await (first, second)
    #expect(censuses.0 == censuses.1)
    #expect(lookUpCount == 1)
  }

  @Test func `a caller whose look-up fails doesn't make the other one fail`() async throws {
    struct Broken: Error {}
    let queue = TaskQueue(persistence: store, clock: clock)
    try await queue.enqueue(Note("a"))
    store.inject(.hang) { $0.kind == .census }
    store.inject(.error(Broken())) { $0.kind == .census }
    let first = Task { try await queue.census() }
    try await store.waitForHeldCalls()
    async let second = queue.census()
    try await clock.sleep(for: .seconds(1))
    first.cancel()
    store.letGo()
    await #expect(throws: Broken.self) { try await first.value }
    #expect(try await second.rows.map(\.count) == [1])
    #expect(lookUpCount == 2)
  }

  @Test func `the newest tasks come first, with a limit and without one`() async throws {
    let queue = TaskQueue(persistence: store, clock: clock)
    let tasks = try await queue.enqueue(contentsOf: (0..<1_200).map { Note("\($0)") })
    let newest = Array(tasks.map(\.id).reversed())
    #expect(try await queue.tasks(newestFirst: true).map(\.id) == newest)
    let page = try await queue.tasks(after: newest[9], limit: 10, newestFirst: true)
    #expect(page.map(\.id) == Array(newest[10..<20]))
  }
}
