import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct First: TaskPayload { var text: String }
private struct Second: TaskPayload { var text: String }

/// Tests tasks that were parked because their handler couldn't decode them.
@Suite(.virtualTime) struct ParkedTaskTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// The parked task comes after more other tasks than one page of a lookup contains.
  @Test func `a fallback handler gets parked tasks that are listed after many other tasks`()
    async throws
  {
    let store = InMemoryStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(First.self) { _, _ in }
    await queue.register(Second.self) { _, _ in }
    let count = 1_500
    for number in 0..<count { try await queue.enqueue(name: "First", .array([.integer(number)])) }
    try await queue.enqueue(name: "Second", "last")
    try await queue.runAvailable()
    #expect(try await queue.count(matching: TaskFilter(states: [.parked])) == count + 1)

    let next = TaskQueue(persistence: store, clock: clock)
    let log = Log<JSONValue>()
    await next.register(First.self) { _, _ in }
    await next.registerFallback { payload, _ in log.add(payload) }
    try await next.runAvailable()
    #expect(log.entries == ["last"])
    #expect(try await next.count(matching: TaskFilter(states: [.parked])) == count)
  }
}
