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

/// A piece of work whose cost is measured, and the benchmark that it is compared with.
struct Benchmark: Sendable {
  let name: String
  /// The name of another benchmark in the same group, with which this benchmark is compared.
  let baseline: String?
  /// The number of times that a single sample repeats the work.
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

  /// Creates a benchmark in which the stopwatch measures only a part of the work.
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

  /// Measures the work's cost per iteration, including the server's cost.
  func sample(of server: ServerProcesses? = nil) async throws -> Sample {
    let stopwatch = Stopwatch(server)
    try await work(iterations, stopwatch)
    guard let whole = stopwatch.sample else { throw Failed() }
    return whole.divided(by: Double(iterations))
  }
}

/// Measures the cost of one run of a piece of work.
///
/// Only one task can use a stopwatch.
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

/// Returns the processor time of this process, on all processors together.
func processorNanoseconds() -> Double { Double(clock()) / Double(CLOCKS_PER_SEC) * 1e9 }

/// Returns the number of times that threads of this process have yielded or lost their processor.
func contextSwitchCount() -> Int {
  var usage = rusage()
  #if canImport(Glibc)
  let result = getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
  #else
  let result = getrusage(RUSAGE_SELF, &usage)
  #endif
  precondition(result == 0, "the system can't count context switches")
  return Int(usage.ru_nvcsw + usage.ru_nivcsw)
}

/// The cost of one run of a piece of work.
struct Sample {
  let nanoseconds: Double
  /// The processor time, on all processors together.
  ///
  /// Other load on the machine hardly affects this time.
  let processorNanoseconds: Double
  /// The processor time of the server's processes; 0 without a server.
  let serverNanoseconds: Double
  let allocations: Double
  let contextSwitches: Double

  /// The processor time of this process and the server.
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
