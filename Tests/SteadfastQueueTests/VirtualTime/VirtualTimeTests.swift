import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct VirtualTimeTests {
  /// Runs three workers over a file, with failures and late tasks.
  ///
  /// - Returns: The attempts with their times.
  private func trace(
    in folder: URL,
    _ order: VirtualTime.Order = .inOrder,
    days: Int = 1
  ) async throws -> [String] {
    let store = JSONFileStore(at: folder.appending(path: UUID().uuidString))
    return try await withVirtualTime(order: order) { time in
      let clock = time.clock
      let start = clock.now
      let log = Log<String>()
      let queue = TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(maxConcurrentTasks: 3, randomness: .seeded(1)),
        clock: clock
      )
      await queue.register(Note.self) { note, context in
        let seconds = start.duration(to: clock.now) / .seconds(1)
        log.add("\(Int(seconds)) s: \(note.text), attempt \(context.retryCount + 1)")
        try await clock.sleep(for: .seconds(note.text.count))
        if context.retryCount < 2, note.text.hasPrefix("bad") { throw Refusal() }
      }
      try await queue.enqueue(contentsOf: ["bad", "good", "bad luck"].map(Note.init))
      try await queue.enqueue(Note("late"), availableDate: clock.date + 3600)
      let last = try await queue.enqueue(
        Note("at last"),
        availableDate: clock.date + Double(days * 86_400)
      )
      try await withRunning(queue) { _ = try await last.outcome() }
      try await store.close()
      return log.entries
    }
  }

  @Test func `a month of retries over a real file passes without real waiting`() async throws {
    try await withTemporaryFolder { folder in
      let trace = try await trace(in: folder, days: 30)
      #expect(
        trace.prefix(3) == [
          "0 s: bad, attempt 1", "0 s: good, attempt 1", "0 s: bad luck, attempt 1",
        ]
      )
      #expect(trace.suffix(2) == ["3600 s: late, attempt 1", "2592000 s: at last, attempt 1"])
      #expect(trace.count == 9)
    }
  }

  @Test(.virtualTime, .timeLimit(.minutes(5)))
  func `a virtual month of a queue does not use up the time limit`() async throws {
    let clock = try #require(VirtualTime.current).clock
    let queue = TaskQueue(persistence: InMemoryStore(), clock: clock)
    let log = Log<Int>()
    await queue.register(Note.self) { _, _ in log.add(Int(clock.now.offset / .seconds(86_400))) }
    let task = try await queue.enqueue(Note("renew"), availableDate: clock.date + 30 * 86_400)
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .succeeded)
    #expect(log.entries == [30])
  }

  @Test func `a run over a real file has the same trace each time`() async throws {
    try await withTemporaryFolder { folder in
      let first = try await trace(in: folder)
      for _ in 0..<30 { #expect(try await trace(in: folder) == first) }
    }
  }

  @Test(arguments: 1...10 as ClosedRange<UInt64>)
  func `a shuffled run has the same trace for the same seed`(seed: UInt64) async throws {
    try await withTemporaryFolder { folder in
      let first = try await trace(in: folder, .shuffled(seed: seed))
      #expect(try await trace(in: folder, .shuffled(seed: seed)) == first)
    }
  }
}
