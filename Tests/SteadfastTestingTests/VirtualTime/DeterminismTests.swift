import SteadfastTesting
import TestSupport
import Testing

/// Repeated runs must have equal traces, however the machine schedules the threads of the runs.
///
/// `STEADFAST_RUNS=20000 swift test -c release -Xswiftc -enable-testing --filter DeterminismTests`,
/// while each core also runs a busy loop, is the long version.
@Suite struct DeterminismTests {
  private static let runs = Soak.runs(short: 200)

  @Test func `three workers produce the same trace every time`() async throws {
    let first = try await ThreeWorkers.trace(order: .inOrder)
    #expect(first.contains { $0.hasSuffix("timed out") })
    #expect(first.contains { $0.hasSuffix("cancelled") })
    #expect(first.contains { $0.hasSuffix("gave up") })
    for _ in 0..<Self.runs { #expect(try await ThreeWorkers.trace(order: .inOrder) == first) }
  }

  @Test func `each seed repeats its trace, and different seeds have different traces`() async throws
  {
    var traces: Set<[String]> = []
    for seed in 0..<UInt64(max(Self.runs / 10, 60)) {
      let trace = try await ThreeWorkers.trace(order: .shuffled(seed: seed))
      #expect(try await ThreeWorkers.trace(order: .shuffled(seed: seed)) == trace)
      traces.insert(trace)
    }
    #expect(traces.count >= 30)
  }

  @Test func `real work of varying duration does not change the trace`() async throws {
    let first = try await ThreeWorkers.trace(order: .inOrder, realWork: true)
    for _ in 0..<Self.runs {
      #expect(try await ThreeWorkers.trace(order: .inOrder, realWork: true) == first)
    }
  }
}
