import AllocationCounter

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#else
import Darwin
#endif

/// A piece of work, and what its cost is compared with.
struct Benchmark: Sendable {
  let name: String
  /// The name of the benchmark, in the same group, that is the measure of this one.
  let baseline: String?
  /// How many times the work is done for one sample.
  private let iterations: Int
  private let work: @Sendable (_ iterations: Int, Stopwatch) async throws -> Void

  init(
    _ name: String,
    against baseline: String? = nil,
    iterations: Int,
    work: @escaping @Sendable (_ iterations: Int) async throws -> Void
  ) {
    self.init(name, against: baseline, iterations: iterations) { count, stopwatch in
      try await stopwatch.measure { try await work(count) }
    }
  }

  /// Makes a benchmark of which the stopwatch measures a part.
  init(
    _ name: String,
    against baseline: String? = nil,
    iterations: Int,
    measuring work: @escaping @Sendable (_ iterations: Int, Stopwatch) async throws -> Void
  ) {
    self.name = name
    self.baseline = baseline
    self.iterations = iterations
    self.work = work
  }

  /// What the work costs each time, and what it costs a server.
  func sample(of server: ServerProcesses? = nil) async throws -> Sample {
    let stopwatch = Stopwatch(server)
    try await work(iterations, stopwatch)
    guard let whole = stopwatch.sample else { throw Failed() }
    return whole.divided(by: Double(iterations))
  }
}

/// Measures what one run of a piece of work costs; one task uses it.
final class Stopwatch {
  fileprivate private(set) var sample: Sample?
  private let server: ServerProcesses?

  fileprivate init(_ server: ServerProcesses?) { self.server = server }

  func measure(_ work: () async throws -> Void) async throws {
    let allocationsBefore = allocation_count()
    let serverBefore = server?.processorNanoseconds() ?? 0
    let processorBefore = processorNanoseconds()
    let switchesBefore = contextSwitchCount()
    let start = ContinuousClock.now
    try await work()
    let duration = start.duration(to: .now)
    sample = Sample(
      nanoseconds: duration / .nanoseconds(1),
      processorNanoseconds: processorNanoseconds() - processorBefore,
      serverNanoseconds: (server?.processorNanoseconds() ?? 0) - serverBefore,
      allocations: Double(allocation_count() - allocationsBefore),
      contextSwitches: Double(contextSwitchCount() - switchesBefore)
    )
  }
}

/// The time of all processors together that this process has taken.
func processorNanoseconds() -> Double { Double(clock()) / Double(CLOCKS_PER_SEC) * 1e9 }

/// How often a thread of this process has given up its processor, or lost it.
func contextSwitchCount() -> Int {
  var usage = rusage()
  #if canImport(Glibc)
  let result = getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
  #else
  let result = getrusage(RUSAGE_SELF, &usage)
  #endif
  precondition(result == 0, "the system does not tell how often threads were switched")
  return Int(usage.ru_nvcsw + usage.ru_nivcsw)
}

/// What one run of a piece of work has cost.
struct Sample {
  let nanoseconds: Double
  /// The time of all processors together; what else the machine does counts little here.
  let processorNanoseconds: Double
  /// The same of the server's processes; 0 without a server.
  let serverNanoseconds: Double
  let allocations: Double
  let contextSwitches: Double

  /// The time of all processors together, of this process and the server.
  var wholeNanoseconds: Double { processorNanoseconds + serverNanoseconds }

  fileprivate func divided(by count: Double) -> Sample {
    Sample(
      nanoseconds: nanoseconds / count,
      processorNanoseconds: processorNanoseconds / count,
      serverNanoseconds: serverNanoseconds / count,
      allocations: allocations / count,
      contextSwitches: contextSwitches / count
    )
  }
}
