import Foundation
import TestSupport

@testable import SteadfastQueue

/// Runs workloads of many seeds on all processors, with every kind of power cut in each.
enum CrashSimulation {
  struct Report: Sendable, CustomStringConvertible {
    var histories = 0
    var crashPoints = 0
    var replacements = 0
    var failedFlushes = 0
    var recoveries = 0
    var nestedRecoveries = 0
    var damagedFiles = 0
    var imageCount = 0
    var findings: [String] = []

    var description: String {
      """
      crash simulator: \(histories) histories (\(replacements - histories) compactions, \
      \(failedFlushes) failed flushes), \(crashPoints) crash points, \
      \(imageCount) distinct images, \(recoveries) recoveries (\(nestedRecoveries) inside a \
      recovery or after it), \(damagedFiles) damaged files, \(findings.count) findings
      """ + findings.prefix(20).map { "\n  " + $0 }.joined()
    }
  }

  /// The number of distinct images to recover, from `STEADFAST_IMAGES`, or `nil` for a quick run.
  static var imageCount: Int? {
    ProcessInfo.processInfo.environment["STEADFAST_IMAGES"].flatMap { Int($0) }
  }

  /// Checks histories until `images` distinct disk images are recovered.
  ///
  /// If `images` is `nil`, one history of each workload is checked, with few images.
  /// `STEADFAST_SEED` is the seed of the first history.
  static func run(images: Int?) async -> Report {
    var report = Report()
    var fingerprints: Set<UInt64> = []
    await withTaskGroup(of: CrashCheck.Figures.self) { group in
      let firstSeed = Soak.seed ?? 0
      var nextSeed = firstSeed
      func addHistory() {
        let seed = nextSeed
        nextSeed += 1
        group.addTask { check(seed: seed, isQuick: images == nil) }
      }
      for _ in 0..<ProcessInfo.processInfo.activeProcessorCount { addHistory() }
      for await figures in group {
        report.add(figures)
        fingerprints.formUnion(figures.images)
        let isEnough =
          images.map { fingerprints.count >= $0 }
          ?? (nextSeed - firstSeed >= Workload.all.count)
        if !isEnough, report.findings.count < 20 { addHistory() }
      }
    }
    report.imageCount = fingerprints.count
    return report
  }

  static func workload(ofSeed seed: UInt64) -> Workload {
    Workload.all[Int(seed % UInt64(Workload.all.count))]
  }

  /// Checks one history.
  ///
  /// The seed determines the workload and all of its random choices.
  static func check(seed: UInt64, isQuick: Bool) -> CrashCheck.Figures {
    let workload = workload(ofSeed: seed)
    let history = WorkloadRun(workload, seed: seed).history()
    var check = CrashCheck(seed: seed)
    if isQuick {
      check.density = CrashImages.Density(cuts: 1, subsets: 1)
      check.imagesPerMoment = 1
      check.nestedShare = 1
    } else if seed / UInt64(Workload.all.count) % 16 == 15 {
      check.density.cutsEverywhere = true
      check.imagesPerMoment = .max
    }
    check.check(history)
    check.figures.findings = check.figures.findings.map { "seed \(seed), \(workload), \($0)" }
    return check.figures
  }
}

extension CrashSimulation.Report {
  fileprivate mutating func add(_ figures: CrashCheck.Figures) {
    histories += 1
    crashPoints += figures.crashPoints
    replacements += figures.replacements
    failedFlushes += figures.failedFlushes
    recoveries += figures.recoveries
    nestedRecoveries += figures.nestedRecoveries
    damagedFiles += figures.damagedFiles
    findings += figures.findings
  }
}
