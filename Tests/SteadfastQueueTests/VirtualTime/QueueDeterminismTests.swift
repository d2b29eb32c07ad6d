import Foundation
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

/// Runs of a queue that differ in nothing but the machine's mood.
///
/// The long form, beside a busy loop on each core, takes as many runs in memory as it is told, as
/// many over a file, at most 2,000, and a tenth of that with pairs of seeds:
/// `STEADFAST_RUNS=20000 swift test -c release -Xswiftc -enable-testing --filter
/// QueueDeterminismTests`.
@Suite struct QueueDeterminismTests {
  private static let runs = Soak.runs(short: 100)
  private static let fileRuns = min(Soak.runs(short: 5), 2000)

  @Test func `the scenario has everything in it`() async throws {
    let trace = try await QueueScenario.trace(over: InMemoryStore())
    for end in [
      "did not end", "snoozed", "released", "abandoned, refused", "cancelled", "succeeded",
    ] {
      #expect(trace.contains { $0.contains(end) }, "\(end)")
    }
    for outcome in ["succeeded", "cancelled", "abandoned(reason: \"refused\")"] {
      #expect(trace.contains { $0.hasSuffix("outcome \(outcome)") }, "\(outcome)")
    }
  }

  @Test func `three workers of a queue leave the same trace each time`() async throws {
    let first = try await QueueScenario.trace(over: InMemoryStore())
    for _ in 1..<Self.runs {
      #expect(try await QueueScenario.trace(over: InMemoryStore()) == first)
    }
  }

  @Test func `each seed repeats its own trace, and the traces differ`() async throws {
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
      for _ in 1..<Self.fileRuns {
        let found = try await Self.traceOverFile(in: folder)
        #expect(found == first, "\(found.difference(from: first))")
      }
    }
  }

  @Test func `each seed repeats its own trace over a real file, and the traces differ`()
    async throws
  {
    try await withTemporaryFolder { folder in
      var traces: Set<[String]> = []
      let seeds = max(Self.fileRuns / 10, 5)
      for seed in 0..<UInt64(seeds) {
        let trace = try await Self.traceOverFile(in: folder, order: .shuffled(seed: seed))
        let again = try await Self.traceOverFile(in: folder, order: .shuffled(seed: seed))
        #expect(trace == again, "seed \(seed): \(again.difference(from: trace))")
        traces.insert(trace)
      }
      #expect(traces.count >= min(seeds / 2, 30))
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
