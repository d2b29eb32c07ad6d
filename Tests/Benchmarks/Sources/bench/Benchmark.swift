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
  private let work: @Sendable (_ iterations: Int) async throws -> Void

  init(
    _ name: String,
    against baseline: String? = nil,
    iterations: Int,
    work: @escaping @Sendable (_ iterations: Int) async throws -> Void
  ) {
    self.name = name
    self.baseline = baseline
    self.iterations = iterations
    self.work = work
  }

  /// What the work costs each time.
  func sample() async throws -> Sample {
    let allocationsBefore = allocation_count()
    let processorBefore = processorNanoseconds()
    let start = ContinuousClock.now
    try await work(iterations)
    let duration = start.duration(to: .now)
    let processor = processorNanoseconds() - processorBefore
    let allocations = allocation_count() - allocationsBefore
    return Sample(
      nanoseconds: duration / .nanoseconds(1) / Double(iterations),
      processorNanoseconds: processor / Double(iterations),
      allocations: Double(allocations) / Double(iterations)
    )
  }
}

/// The time of all processors together that this process has taken.
func processorNanoseconds() -> Double { Double(clock()) / Double(CLOCKS_PER_SEC) * 1e9 }

/// What one run of a piece of work has cost.
struct Sample {
  let nanoseconds: Double
  /// The time of all processors together; what else the machine does counts little here.
  let processorNanoseconds: Double
  let allocations: Double
}
