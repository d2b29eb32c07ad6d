import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests rate limits across restarts, and in several processes on one store.
extension RateLimitTests {
  /// Returns the largest number of starts within any interval of the given length.
  private static func maxStartCount(_ starts: [Double], within seconds: Double) -> Int {
    var (most, first) = (0, 0)
    let starts = starts.sorted()
    for index in starts.indices {
      // Dates are exact only to a microsecond.
      while starts[index] - starts[first] >= seconds - 1e-6 { first += 1 }
      most = max(most, index - first + 1)
    }
    return most
  }

  @Test(arguments: StoreKind.allCases)
  func `a limit persists across processes, even without a shutdown`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let first = await makeQueue(limits: [.atMost(3, per: .seconds(3_600))], on: store)
      try await first.enqueue(contentsOf: makeMails(count: 8))
      #expect(try await first.runAvailable() == 3)
      // The first process ends without a further call to the store.
      let second = await makeQueue(limits: [.atMost(3, per: .seconds(3_600))], on: store)
      #expect(try await second.runAvailable() == 0)
      clock.advance(by: .seconds(3_599))
      #expect(try await second.runAvailable() == 0)
      clock.advance(by: .seconds(1))
      #expect(try await second.runAvailable() == 3)
      // A changed limit includes earlier starts.
      let third = await makeQueue(limits: [.atMost(4, per: .seconds(3_600))], on: store)
      #expect(try await third.runAvailable() == 1)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `another process sees the limits, and how much of them is used`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let watch = await makeQueue(limits: [], on: store)
      #expect(try await watch.rateLimits().isEmpty)
      let limits: [RateLimit] = [
        .atMost(10_000, per: .seconds(60)), .atMost(3, per: .seconds(3_600), of: Mail.self),
        .atMost(2, per: .seconds(5), of: Mail.self),
        .atMost(1, per: .seconds(1), of: Mail.self, key: \.account),
      ]
      let queue = await makeQueue(limits: limits, on: store)
      try await queue.enqueue(contentsOf: (0..<8).map { Mail(account: $0) })
      let start = clock.date
      #expect(try await queue.runAvailable() == 2)
      clock.advance(by: .seconds(2))
      let stored = try await watch.rateLimits()
      #expect(stored.map(\.count) == [1_000, 3, 2, 1])
      #expect(stored.map(\.interval) == [6, 3_600, 5, 1].map { .seconds($0) })
      #expect(stored.map(\.names) == [nil, ["Mail"], ["Mail"], ["Mail"]])
      #expect(stored.map(\.hasKeys) == [false, false, false, true])
      #expect(stored.map(\.startCount) == [2, 2, 2, nil])
      #expect(stored.map(\.nextStart) == [nil, nil, start + 5, nil])
      clock.advance(by: .seconds(4))
      #expect(try await watch.rateLimits().map(\.startCount) == [0, 2, 0, nil])
      await queue.register(Mail.self) { _, _ in
        throw TaskSnoozed(for: .seconds(60), scope: .rateLimit)
      }
      // The pause of a limit with keys applies to the key.
      #expect(try await queue.runAvailable() == 1)
      #expect(try await watch.rateLimits().map(\.nextStart) == [nil, start + 3_600, nil, nil])
      let next = await makeQueue(limits: [.atMost(1, per: .seconds(9), of: Mail.self)], on: store)
      await next.register(Mail.self) { _, _ in
        throw TaskSnoozed(for: .seconds(7_200), scope: .rateLimit)
      }
      clock.advance(by: .seconds(3_600))
      #expect(try await next.runAvailable() == 1)
      let paused = try await watch.rateLimits()
      #expect(paused.map(\.count) == [1] && paused[0].startCount == 1)
      #expect(paused[0].pausedUntil == start + 3_606 + 7_200)
      #expect(paused[0].nextStart == paused[0].pausedUntil)
    }
  }

  @Test func `limits that can't be decoded are an error that names them, and a run replaces them`()
    async throws
  {
    let store = InMemoryStore()
    for (name, bytes) in [("steadfast.limits", "{}"), ("steadfast.limit/Mail", "?")] {
      _ = try await store.apply(
        [.setValue(named: name, from: nil, to: Array(bytes.utf8))],
        durability: .durable
      )
    }
    let limits: [RateLimit] = [.atMost(3, per: .seconds(60), of: Mail.self)]
    let queue = await makeQueue(limits: limits, on: store)
    let error = await #expect(throws: TaskQueueError.self) { try await queue.rateLimits() }
    #expect(error?.code == .storeFailed && "\(error!)".contains("'steadfast.limits'"))
    try await queue.enqueue(Mail())
    #expect(try await queue.runAvailable() == 0)
    #expect(try await queue.rateLimits().map(\.startCount) == [3])
    #expect(try await queue.rateLimits().map(\.nextStart) == [clock.date + 60])
  }

  @Test func `limits are respected and fully used during an hour with restarts and 20 names`()
    async throws
  {
    let names = (0..<20).map { "name \($0)" }
    // The limits of the names allow more starts in total than the first limit.
    let limits: [RateLimit] =
      [.atMost(30, per: .seconds(60))] + names.map { .atMost(1, per: .seconds(20), named: $0) }
    try await withTemporaryFolder { folder in
      var random = SplitMix64(seed: 5)
      var isFirst = true
      while clock.now.offset < .seconds(3_600) {
        let store = JSONFileStore(at: folder.appending(path: "queue"))
        let queue = await makeQueue(limits: limits, on: store, workers: 8)
        for name in names {
          await queue.register(name: name) { [log, clock = time.clock] _, _ in
            log.add((name, clock.now.offset / .seconds(1)))
          }
        }
        if isFirst {
          for index in 0..<2_400 { try await queue.enqueue(name: names[index % 20], "x") }
          isFirst = false
        }
        let length = Double.random(in: 30...900, using: &random)
        try await withRunning(queue) { try await clock.sleep(for: .seconds(length)) }
        try await store.close()
      }
    }
    for name in names { #expect(Self.maxStartCount(startSeconds(labelled: name), within: 20) <= 1) }
    let all = log.entries.map(\.second)
    #expect(Self.maxStartCount(all, within: 60) == 30)
    // Tasks are always waiting, so each minute has the maximum number of starts.
    let minutes = Int(clock.now.offset / .seconds(60))
    #expect(all.count >= 30 * minutes, "\(all.count) in \(minutes) minutes")
  }

  @Test func `two processes that share a store respect a limit together, and fully use it`()
    async throws
  {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let limits: [RateLimit] = [
      .atMost(5, per: .seconds(10)), .atMost(6, per: .seconds(60), of: Mail.self, key: \.account),
    ]
    let a = await makeQueue(limits: limits, on: shared.process())
    let b = await makeQueue(limits: limits, on: shared.process())
    for account in 0..<3 { try await a.enqueue(contentsOf: makeMails(count: 40, account: account)) }
    try await withRunning(a) {
      try await withRunning(b) {
        try await clock.sleep(for: .seconds(600))
      }
    }
    let all = log.entries.map(\.second)
    #expect(Self.maxStartCount(all, within: 10) == 5)
    for account in 0..<3 {
      let starts = startSeconds(labelled: "mail \(account)")
      #expect(Self.maxStartCount(starts, within: 60) <= 6)
    }
    #expect(all.count == 120)
    // Each account's own limit requires 40 / 6 minutes. The queue's limit of 30 starts a minute
    // doesn't delay them.
    #expect(all.max() ?? 0 <= 420 + 60)
  }

  @Test func `a pause of a limit also applies to other processes`() async throws {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let limits: [RateLimit] = [.atMost(10, per: .seconds(1))]
    let a = await makeQueue(limits: limits, on: shared.process())
    let b = await makeQueue(limits: limits, on: shared.process())
    for queue in [a, b] {
      await queue.register(name: "api") { [clock = time.clock] _, _ in
        if clock.now.offset == .zero { throw TaskSnoozed(for: .seconds(100), scope: .rateLimit) }
      }
    }
    try await a.enqueue(name: "api", 1)
    #expect(try await b.enqueue(Mail()).isNew)
    #expect(try await b.runAvailable() >= 1)
    let begun = log.count
    try await a.enqueue(Mail(account: 7))
    #expect(try await a.runAvailable() == 0)
    clock.advance(by: .seconds(100))
    #expect(try await a.runAvailable() >= 1)
    #expect(startSeconds(labelled: "mail 7") == [100] && log.count <= begun + 2)
  }

  @Test func `the queues of a group have separate limits`() async throws {
    let group = TaskQueueGroup(
      configuration: TaskQueueConfiguration(rateLimits: [.atMost(1, per: .seconds(60))]),
      clock: clock
    ) { queue in
      await queue.register(Mail.self) { _, _ in }
    }
    for name in ["default", "a", "b"] {
      let queue = try await group.addQueue(name)
      try await queue.enqueue(contentsOf: [Mail(), Mail()])
    }
    #expect(try await group.runAvailable() == 3)
    #expect(try await group.runAvailable() == 0)
    clock.advance(by: .seconds(60))
    #expect(try await group.runAvailable() == 3)
  }

  @Test func `setting a clock back by a year doesn't delay tasks by a year`() async throws {
    let store = InMemoryStore()
    let ahead = SkewedClock(base: clock, seconds: 365 * 86_400)
    let first = await makeQueue(limits: [.atMost(1, per: .seconds(60))], on: store, clock: ahead)
    try await first.enqueue(contentsOf: makeMails(count: 2))
    #expect(try await first.runAvailable() == 1)
    let second = await makeQueue(limits: [.atMost(1, per: .seconds(60))], on: store)
    #expect(try await second.runAvailable() == 0)
    clock.advance(by: .seconds(60))
    #expect(try await second.runAvailable() == 1)
  }

  @Test(arguments: [true, false])
  func `short-lived processes recover from a start in the future and from invalid bytes`(
    isReadable: Bool
  ) async throws {
    let store = InMemoryStore()
    let ahead = SkewedClock(base: clock, seconds: 365 * 86_400)
    let first = await makeQueue(limits: [.atMost(1, per: .seconds(90))], on: store, clock: ahead)
    try await first.enqueue(contentsOf: makeMails(count: 2))
    #expect(try await first.runAvailable() == 1)
    if !isReadable {
      let bytes = try await store.value(named: RateLimits.valueName)
      let change = TaskChange.setValue(named: RateLimits.valueName, from: bytes, to: [9, 9])
      #expect(try await store.apply([change], durability: .durable) == [.done])
    }
    for count in [0, 0, 1] {
      let next = await makeQueue(limits: [.atMost(1, per: .seconds(90))], on: store)
      #expect(try await next.runAvailable() == count)
      clock.advance(by: .seconds(60))
    }
  }

  @Test func `a stored limit is repaired even if the store fails temporarily`() async throws {
    let store = FaultInjectingStore()
    let change = TaskChange.setValue(named: RateLimits.valueName, from: nil, to: [9, 9])
    #expect(try await store.apply([change], durability: .durable) == [.done])
    store.inject(.transientError) { call in
      call.changes.contains { change in
        if case .setValue(_, let old, _) = change { old == [9, 9] } else { false }
      }
    }
    let queue = await makeQueue(limits: [.atMost(1, per: .seconds(60))], on: store)
    try await queue.enqueue(contentsOf: makeMails(count: 1))
    try await withRunning(queue) { try await clock.sleep(for: .seconds(70)) }
    #expect(log.count == 1)
  }

  @Test func `a queue that repairs a stored limit shuts down while its store is unavailable`()
    async throws
  {
    let store = FaultInjectingStore()
    let change = TaskChange.setValue(named: RateLimits.valueName, from: nil, to: [9, 9])
    #expect(try await store.apply([change], durability: .durable) == [.done])
    store.inject(.transientError, times: nil) { call in
      call.changes.contains { change in
        if case .setValue(_, let old, _) = change { old == [9, 9] } else { false }
      }
    }
    let queue = await makeQueue(limits: [.atMost(1, per: .seconds(60))], on: store)
    try await queue.enqueue(contentsOf: makeMails(count: 1))
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(5))
    queue.beginShutDown()
    try await run
    #expect(clock.now.offset == .seconds(5) && log.count == 0)
  }

  @Test func `the interval is measured from the attempts' starts even if the store is slow`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(limits: [.atMost(2, per: .seconds(1))], on: store)
    try await queue.enqueue(contentsOf: makeMails(count: 4))
    store.inject(.delay(.seconds(5), on: clock), .beforeEffect) { call in
      call.changes.contains(where: \.storesStarts)
    }
    try await withRunning(queue) { try await clock.sleep(for: .seconds(10)) }
    #expect(log.entries.map(\.1) == [5, 5, 6, 6])
  }

  @Test(arguments: [FaultInjectingStore.Moment.beforeEffect, .afterEffect])
  func `if counting the starts fails, no attempt starts, and no task is lost`(
    moment: FaultInjectingStore.Moment
  ) async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(limits: [.atMost(3, per: .seconds(60))], on: store)
    try await queue.enqueue(contentsOf: makeMails(count: 2))
    store.inject(.error(Broken()), moment) { call in
      call.changes.contains(where: \.storesStarts)
    }
    let error = await queueError { try await queue.runAvailable() }
    #expect(error?.code == .storeFailed && log.count == 0)
    // If the starts were stored, they count although the attempts never started.
    let left = moment == .beforeEffect ? 2 : 1
    #expect(try await queue.runAvailable() == left)
    clock.advance(by: .seconds(60))
    #expect(try await queue.runAvailable() == 2 - left)
    #expect(try await queue.count == 0)
  }

  private struct Broken: Error {}

  @Test func `starts are counted even if the store fails temporarily`() async throws {
    let store = FaultInjectingStore()
    let queue = await makeQueue(limits: [.atMost(3, per: .seconds(60))], on: store)
    let tasks = try await queue.enqueue(contentsOf: makeMails(count: 2))
    store.inject(.transientError) { call in
      call.changes.contains(where: \.storesStarts)
    }
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
    #expect(startSeconds(labelled: "mail 0").count == 2)
    #expect(clock.now.offset <= .seconds(2))
  }

  @Test
  func `a task whose lease expires before its start is counted starts only in another process`()
    async throws
  {
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let store = FaultInjectingStore(shared.process())
    let a = await makeQueue(limits: [.atMost(5, per: .seconds(10))], on: store)
    let b = await makeQueue(limits: [.atMost(5, per: .seconds(10))], on: shared.process())
    try await a.enqueue(Mail())
    store.inject(.transientError, times: nil) { $0.changes.contains("setValue") }
    try await withRunning(a) {
      try await clock.sleep(for: .seconds(1))
      try await withRunning(b) { try await clock.sleep(for: .seconds(99)) }
      store.restore()
      // A task that the queue claims afterwards starts.
      try await a.enqueue(Mail(account: 1))
      try await clock.sleep(for: .seconds(30))
    }
    #expect(startSeconds(labelled: "mail 0").count == 1)
    #expect(startSeconds(labelled: "mail 1").count == 1)
    #expect(try await b.count == 0)
  }
}

extension TaskChange {
  /// Whether this stores the starts that count for the limit of all tasks of a queue.
  var storesStarts: Bool {
    guard case .setValue(let name, _, _) = self else { return false }
    return name == RateLimits.valueName
  }
}
