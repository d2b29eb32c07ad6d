import Foundation
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

/// Tests that repeated runs of a queue leave the same trace, whatever the load of the machine.
///
/// For a long run, on a machine with a busy loop on each core: `STEADFAST_RUNS=20000 swift test
/// -c release -Xswiftc -enable-testing --filter QueueDeterminismTests`. This makes the given number
/// of runs in memory, as many over a file, but at most 2,000, and a tenth of each with pairs of
/// seeds.
@Suite struct QueueDeterminismTests {
  private static let runs = Soak.runs(short: 100)
  private static let fileRuns = min(Soak.runs(short: 5), 2000)

  @Test func `the scenario has every kind of outcome`() async throws {
    let trace = try await QueueScenario.trace(over: InMemoryStore())
    for end in [
      "did not end", "snoozed", "released", "abandoned, refused", "cancelled", "succeeded",
    ] {
      #expect(trace.contains { $0.contains(end) }, "\(end)")
    }
    for outcome in ["succeeded", "cancelled", "abandoned: refused"] {
      #expect(trace.contains { $0.hasSuffix("outcome \(outcome)") }, "\(outcome)")
    }
  }

  @Test func `a queue with three workers leaves the same trace each time`() async throws {
    let first = try await QueueScenario.trace(over: InMemoryStore())
    for _ in 1..<Self.runs {
      #expect(try await QueueScenario.trace(over: InMemoryStore()) == first)
    }
  }

  @Test func `a queue over a sealed store leaves the same trace`() async throws {
    let sealed = InMemoryStore().sealingPayloads(with: TestSeal().payloadSeal)
    #expect(
      try await QueueScenario.trace(over: sealed) == QueueScenario.trace(over: InMemoryStore())
    )
  }

  @Test func `each seed has its own trace, which is the same in each run`() async throws {
    var traces: Set<[String]> = []
    for seed in 0..<UInt64(max(Self.runs / 10, 60)) {
      let trace = try await QueueScenario.trace(over: InMemoryStore(), order: .shuffled(seed: seed))
      let again = try await QueueScenario.trace(over: InMemoryStore(), order: .shuffled(seed: seed))
      #expect(trace == again, "seed \(seed)")
      if seed < 250 { traces.insert(trace) }
    }
    #expect(traces.count >= 30)
  }

  @Test func `three workers over a real file leave the same trace each time`() async throws {
    try await withTemporaryFolder { folder in
      let first = try await Self.traceOverFile(in: folder)
      try await Self.runConcurrently(Self.fileRuns) { _ in
        let found = try await Self.traceOverFile(in: folder)
        #expect(found == first, "\(found.difference(from: first))")
      }
    }
  }

  @Test func `over a real file, each seed has its own trace, which is the same in each run`()
    async throws
  {
    let traces = Log<[String]>()
    let seeds = max(Self.fileRuns / 10, 5)
    try await withTemporaryFolder { folder in
      try await Self.runConcurrently(seeds) { seed in
        let order = VirtualTime.Order.shuffled(seed: UInt64(seed))
        let trace = try await Self.traceOverFile(in: folder, order: order)
        let again = try await Self.traceOverFile(in: folder, order: order)
        #expect(trace == again, "seed \(seed): \(again.difference(from: trace))")
        traces.add(trace)
      }
    }
    #expect(Set(traces.entries).count >= min(seeds / 2, 30))
  }

  /// Makes `count` runs, several at a time because they mostly wait for the disk.
  private static func runConcurrently(
    _ runs: Int,
    _ run: @escaping @Sendable (_ number: Int) async throws -> Void
  ) async throws {
    let lanes = 8
    try await withThrowingTaskGroup(of: Void.self) { group in
      for lane in 0..<lanes {
        group.addTask {
          for number in stride(from: lane, to: runs, by: lanes) { try await run(number) }
        }
      }
      try await group.waitForAll()
    }
  }

  private static func traceOverFile(
    in folder: URL,
    order: VirtualTime.Order = .inOrder
  ) async throws -> [String] {
    let url = folder.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: url) }
    return try await QueueScenario.trace(over: JSONFileStore(at: url), order: order)
  }
}
