import SteadfastTesting
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite(.timeLimit(.minutes(5))) struct WithVirtualTimeTests {
  private struct Boom: Error {}

  @Test func `a virtual year passes at once, and the result of the body is returned`()
    async throws
  {
    let elapsed = try await withVirtualTime { time in
      for _ in 0..<365 { try await time.clock.sleep(for: .seconds(86_400)) }
      return time.clock.now.offset
    }
    #expect(elapsed == .seconds(365 * 86_400))
  }

  @Test func `the body's error is rethrown`() async {
    await #expect(throws: Boom.self) { try await withVirtualTime { _ in throw Boom() } }
  }

  @Test
  func
    `sleepers wake by their deadlines, and then in the order in which they fell asleep`()
    async throws
  {
    let order = try await withVirtualTime { time in
      try await withThrowingTaskGroup(of: String.self) { group in
        for (name, seconds) in [("c", 2), ("a", 1), ("d", 2), ("b", 1)] {
          group.addTask {
            try await time.clock.sleep(for: .seconds(seconds))
            return name
          }
        }
        return try await group.reduce(into: "") { $0 += $1 }
      }
    }
    #expect(order == "abcd")
  }

  @Test func `default actors and async let stay inside the virtual time`() async throws {
    actor Log {
      var entries: [String] = []
      func note(_ entry: String) { entries.append(entry) }
    }
    let entries = try await withVirtualTime { time in
      let log = Log()
      async let slow: Void = {
        try await time.clock.sleep(for: .seconds(2))
        await log.note("slow at \(time.clock.now)")
      }()
      async let quick: Void = {
        try await time.clock.sleep(for: .seconds(1))
        await log.note("quick at \(time.clock.now)")
      }()
      _ = try await (slow, quick)
      return await log.entries
    }
    #expect(entries == ["quick at 1.0 seconds", "slow at 2.0 seconds"])
  }

  @Test(arguments: [VirtualTime.Mode.automatic, .manual])
  func `advance() returns when everything that is due at the new time has been done`(
    mode: VirtualTime.Mode
  ) async throws {
    let ticks = try await withVirtualTime(mode) { time in
      let trace = Trace()
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
          for _ in 0..<10 {
            try await time.clock.sleep(for: .seconds(60))
            await Task.yield()
            trace.note("tick")
          }
        }
        await time.advance(by: .seconds(180))
        #expect(trace.entries.count == 3)
        #expect(time.clock.now.offset == .seconds(180))
        await time.advance(by: .seconds(59))
        #expect(trace.entries.count == 3)
        await time.advance(to: VirtualClock.Instant(offset: .seconds(600)))
      }
      return trace.entries.count
    }
    #expect(ticks == 10)
  }

  @Test func `advance() by a duration of zero lets other tasks run`() async throws {
    try await withVirtualTime(.manual) { time in
      let trace = Trace()
      async let other: Void = {
        for _ in 0..<100 { await Task.yield() }
        trace.note("done")
      }()
      await time.advance(by: .zero)
      #expect(trace.entries == ["done"])
      await other
    }
  }

  @Test func `concurrent calls of advance() return in the order of their new times`() async throws {
    let order = try await withVirtualTime(.manual) { time in
      await withTaskGroup(of: Int.self) { group in
        for seconds in [3, 1, 2] {
          group.addTask {
            await time.advance(by: .seconds(seconds))
            return seconds
          }
        }
        return await group.reduce(into: []) { $0.append($1) }
      }
    }
    #expect(order == [1, 2, 3])
  }

  @Test func `cancelling the caller cancels the body`() async {
    let (entered, enter) = AsyncStream<Void>.makeStream()
    // An unstructured task, so that the test can cancel it.
    let task = Task {
      try await withVirtualTime { time in
        try await time.withRealWork {
          enter.finish()
          try await VirtualClock().sleep(for: .seconds(1))
        }
      }
    }
    for await _ in entered {}
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
  }

  @Test func `a cancelled call of advance() returns without moving the time further`() async throws
  {
    try await withVirtualTime { time in
      await withTaskGroup(of: Void.self) { group in
        group.addTask { await time.advance(by: .seconds(60)) }
        await time.advance(by: .seconds(1))
        group.cancelAll()
        await group.waitForAll()
        #expect(time.clock.now.offset == .seconds(1))
      }
    }
  }

  @Test func `the date advances with the time`() async throws {
    try await withVirtualTime { time in
      let start = time.clock.date
      try await time.clock.sleep(for: .seconds(90))
      #expect(time.clock.date.timeIntervalSince(start) == 90)
    }
  }

  @Test func `a nested virtual time completes while the outer one stands still`() async throws {
    try await withVirtualTime { outer in
      async let slept: Void = outer.clock.sleep(for: .seconds(5))
      let inner = try await withVirtualTime { inner in
        await inner.withRealWork { await realDelay() }
        try await inner.clock.sleep(for: .seconds(100))
        return inner.clock.now.offset
      }
      #expect(inner == .seconds(100))
      #expect(outer.clock.now.offset == .zero)
      try await slept
    }
  }

  @Test func `an unstructured task with the virtual time's executor stays in the virtual time`()
    async throws
  {
    try await withVirtualTime { time in
      let task = Task(executorPreference: time.executor) {
        try await time.clock.sleep(for: .seconds(30))
        return time.clock.now.offset
      }
      let end = try await task.value
      #expect(end == .seconds(30))
    }
  }

  @Test func `shuffling varies the order of sleepers that have the same deadline`() async throws {
    var orders: Set<[Int]> = []
    for seed in 0..<20 as Range<UInt64> {
      let order = try await withVirtualTime(order: .shuffled(seed: seed)) { time in
        try await withThrowingTaskGroup(of: Int.self) { group in
          for index in 0..<3 {
            group.addTask {
              try await time.clock.sleep(until: VirtualClock.Instant(offset: .seconds(60)))
              return index
            }
          }
          var order: [Int] = []
          for try await index in group { order.append(index) }
          return order
        }
      }
      orders.insert(order)
    }
    #expect(orders.count > 3)
  }

  @Test(.timeLimit(.minutes(5)))
  func `advancing a virtual time that has ended returns at once`() async throws {
    let ended = try await withVirtualTime(.manual) { $0 }
    await ended.advance(by: .seconds(1))
    #expect(ended.clock.now.offset == .zero)
  }
}
