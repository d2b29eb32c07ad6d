import Foundation

@testable import SteadfastQueue

/// Runs workloads in which one call to the disk fails: each call in turn, in every way.
///
/// The workload continues after the failure. Then power cuts are simulated after every operation,
/// and each disk is recovered.
enum FaultSweep {
  struct Report: Sendable, CustomStringConvertible {
    var calls = 0
    var faults = 0
    var crashPoints = 0
    var images = 0
    var findings: [String] = []

    var description: String {
      """
      single faults: \(calls) calls of the disk, \(faults) faults, \(crashPoints) crash points \
      after them, \(images) images, \(findings.count) findings
      """ + findings.prefix(20).map { "\n  " + $0 }.joined()
    }
  }

  static let workloads = [
    Workload(name: "durable insertions", rounds: 5),
    Workload(
      name: "batches of many callers",
      rounds: 4,
      concurrentCalls: 4,
      batchSize: 4,
      workShare: 30,
      keyedShare: 30
    ),
    Workload(
      name: "relaxed lines",
      rounds: 6,
      concurrentCalls: 3,
      batchSize: 3,
      relaxedShare: 60,
      workShare: 40
    ),
    Workload(
      name: "restarts",
      rounds: 8,
      concurrentCalls: 2,
      batchSize: 2,
      relaxedShare: 40,
      workShare: 50,
      restartShare: 50,
      destructionShare: 10
    ),
    Workload(
      name: "compaction",
      rounds: 18,
      concurrentCalls: 2,
      batchSize: 3,
      relaxedShare: 20,
      workShare: 80,
      keyedShare: 20,
      restartShare: 5,
      compactionSize: 600
    ),
    Workload(
      name: "reserved space",
      rounds: 7,
      concurrentCalls: 2,
      batchSize: 2,
      workShare: 40,
      restartShare: 20,
      reservedSpace: 900
    ),
    Workload(
      name: "flushed at intervals",
      rounds: 8,
      concurrentCalls: 2,
      batchSize: 3,
      workShare: 50,
      restartShare: 15,
      flushing: .atMostEvery(.seconds(1))
    ),
    Workload(
      name: "flushed by the system",
      rounds: 6,
      concurrentCalls: 2,
      batchSize: 2,
      workShare: 50,
      restartShare: 20,
      flushing: .leftToSystem
    ),
  ]

  /// Lets each call of each workload fail in every way; in a quick run, every 16th in one way.
  static func run(isQuick: Bool) async -> Report {
    await withTaskGroup(of: Report.self) { group in
      for (number, workload) in workloads.enumerated() {
        let seed = UInt64(number)
        let disk = SimulatedDisk()
        _ = WorkloadRun(workload, seed: seed, disk: disk).history()
        for (index, name) in disk.calls.enumerated() {
          guard !isQuick || index % 16 == number else { continue }
          let faults = faults(of: name)
          let chosen = isQuick ? [faults[index / 16 % faults.count]] : faults
          group.addTask { check(workload, seed, call: index + 1, name, chosen, isQuick: isQuick) }
        }
      }
      return await group.reduce(into: Report()) { $0.add($1) }
    }
  }

  /// The ways in which a call may fail.
  ///
  /// Real files retry interrupted system calls, so the store treats `EINTR` like any other error.
  private static func faults(of call: String) -> [SimulatedDisk.Fault] {
    let errors = [EIO, ENOSPC, EINTR].map { SimulatedDisk.Fault.error($0) }
    return call == "write" ? errors + [.half(EIO), .half(ENOSPC), .short] : errors
  }

  private static func check(
    _ workload: Workload,
    _ seed: UInt64,
    call: Int,
    _ name: String,
    _ faults: [SimulatedDisk.Fault],
    isQuick: Bool
  ) -> Report {
    var report = Report(calls: 1)
    for fault in faults {
      let disk = SimulatedDisk()
      disk.plan(fault, atCall: call)
      let history = WorkloadRun(workload, seed: seed, disk: disk).history()
      var check = CrashCheck(seed: seed)
      check.density = CrashImages.Density(cuts: 1, subsets: 1)
      check.imagesPerMoment = isQuick ? 1 : 4
      check.nestedShare = isQuick ? 0 : 2
      check.damagesPerFlush = 0
      check.firstMoment = disk.faultMoment ?? 0
      check.check(history)
      if let problem = history.problem(afterFault: fault, in: name) {
        check.figures.findings.append(problem)
      }
      report.faults += 1
      report.crashPoints += check.figures.crashPoints
      report.images += check.figures.images.count
      report.findings += check.figures.findings.map {
        "\(workload), call \(call) (\(name)), \(fault): \($0)"
      }
    }
    return report
  }
}

extension FaultSweep.Report {
  fileprivate mutating func add(_ other: FaultSweep.Report) {
    calls += other.calls
    faults += other.faults
    crashPoints += other.crashPoints
    images += other.images
    findings += other.findings
  }
}

extension History {
  /// Describes a result that can't follow from a single fault, or returns `nil`.
  fileprivate func problem(afterFault fault: SimulatedDisk.Fault, in call: String) -> String? {
    let failures = events.compactMap { event -> Bool? in
      if case .failed(_, let isUnknown) = event.event { isUnknown } else { nil }
    }
    if fault == .short, !failures.isEmpty { return "a short write was not continued" }
    let mayPoison = ["synchronize", "synchronizeFolder"].contains(call)
    if !mayPoison, failures.contains(true) { return "an outcome is unknown for no reason" }
    return nil
  }
}
