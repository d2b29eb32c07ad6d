import Foundation
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

/// Runs of a queue that differ in nothing but the machine's mood.
///
/// The long form, beside a busy loop on each core, takes as many runs in memory as it is told, and a
/// tenth of them with pairs of seeds and over a file:
/// `STEADFAST_RUNS=20000 swift test -c release -Xswiftc -enable-testing --filter
/// QueueDeterminismTests`.
@Suite struct QueueDeterminismTests {
  private static let runs = Soak.runs(short: 100)

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

  // The trace is sorted: in which order a worker and the finisher go on that wait for the disk at
  // the same instant, the disk decides.
  @Test func `three workers over a real file do the same at each instant`() async throws {
    try await withTemporaryFolder { folder in
      func trace(_ number: Int) async throws -> [String] {
        let url = folder.appending(path: "\(number)")
        defer { try? FileManager.default.removeItem(at: url) }
        return try await QueueScenario.trace(over: JSONFileStore(at: url)).sorted()
      }
      let first = try await trace(0)
      for number in 1..<max(Self.runs / 10, 10) {
        let found = try await trace(number)
        #expect(found == first, "\(found.difference(from: first))")
      }
    }
  }
}
