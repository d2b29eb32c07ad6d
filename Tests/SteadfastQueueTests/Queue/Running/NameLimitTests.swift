import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct NameLimitTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Registers a handler whose attempts take 10 seconds.
  private func registerHandler(in queue: TaskQueue, limit: Int?) async {
    await queue.register(Note.self, maxConcurrentTasks: limit) { [clock, log] note, _ in
      log.add("\(clock.now.offset / .seconds(1)) \(note.text)")
      try await clock.sleep(for: .seconds(10))
    }
  }

  @Test func `a name's limit also counts tasks that started before the limit was set`()
    async throws
  {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: clock
    )
    await registerHandler(in: queue, limit: nil)
    try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(5))
      await registerHandler(in: queue, limit: 1)
      let tasks = try await queue.enqueue(contentsOf: [Note("b"), Note("c")])
      for task in tasks { _ = try await task.outcome() }
    }
    #expect(log.entries == ["0.0 a", "10.0 b", "20.0 c"])
  }

  @Test func `a removed limit has no effect`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: clock
    )
    await registerHandler(in: queue, limit: 1)
    try await queue.enqueue(contentsOf: ["a", "b", "c"].map(Note.init))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(5))
      await registerHandler(in: queue, limit: nil)
      try await clock.sleep(for: .seconds(1))
    }
    #expect(log.entries == ["0.0 a", "5.0 b", "5.0 c"])
  }

  @Test(arguments: 0..<20 as Range<UInt64>)
  func `a name's remaining capacity is its limit minus its leased tasks`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let names = ["a", "b", "c", "d"]
    var limited = ConcurrencyLimits()
    var limits: [String: Int] = [:]
    var leased: [String: Int] = [:]
    var counted: Set<String> = []
    var version = 0
    for step in 0..<300 {
      let name = names[Int(random.next() % 4)]
      switch random.next() % 6 {
      case 0:
        version += 1
        limits[name] = random.next() % 3 == 0 ? .max : Int(random.next() % 5)
        limited.add(name, leasedCount: leased[name, default: 0])
        counted.insert(name)
      case 1, 2:
        let record = TaskRecord.make(step, name: name)
        limited.addLeased([ClaimedTask(record: record, lease: Lease(id: record.id, token: 1))])
        leased[name, default: 0] += 1
      case 3 where leased[name, default: 0] > 0:
        limited.removeLeased(named: name)
        leased[name, default: 0] -= 1
      default: break
      }
      let room = limited.remainingCounts(within: limits, version: version)
      for name in names where counted.contains(name) {
        #expect(room[name, default: 0] == limits[name, default: 0] - leased[name, default: 0])
      }
      for (name, limit) in limits where !counted.contains(name) { #expect(room[name] == limit) }
    }
  }
}
