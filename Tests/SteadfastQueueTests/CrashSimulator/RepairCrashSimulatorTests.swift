import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

/// Repairs a file with a power cut at each moment, and with a failure of each call.
@Suite struct RepairCrashSimulatorTests {
  private let original: [UInt8]
  private let image: DiskImage
  private let digest: UInt64

  init() throws {
    var text = try JournalText()
    try text.addTasks(1...6)
    try text.addSuccess(of: 2)
    try text.add(.begin(.numbered(3)), .seal)
    original = text.lines.flipping(4).flatMap { $0 }
    var image = DiskImage()
    image.apply(.create(.journal, node: 0))
    image.apply(.write(node: 0, offset: 0, original))
    self.image = image
    digest = try JournalInspection(original).table.digest()
  }

  private func repair(_ disk: any JournalStorage) throws -> JournalRepair {
    try #require(try JournalRepair.repair(disk, at: .seconds(0)))
  }

  /// The digest of the tasks in the opened file, or `nil` if opening refuses the file as damaged.
  private func digestAfterOpening(_ image: DiskImage) throws -> UInt64? {
    do {
      return try Journal.open(SimulatedDisk(image)).table.digest()
    } catch JournalProblem.damaged {
      return nil
    }
  }

  /// Describes what is wrong with a disk image after a power cut, or returns `nil`.
  private func problem(in image: DiskImage) -> String? {
    do {
      return try problemIfUsable(in: image)
    } catch {
      return "the file is unusable: \(error)"
    }
  }

  private func problemIfUsable(in image: DiskImage) throws -> String? {
    let copies = (1...3).compactMap { image.bytes(of: .copy($0)) }
    guard copies.allSatisfy({ $0 == original || $0.isEmpty }) else { return "an incomplete copy" }
    if image.bytes(of: .journal) != original {
      guard copies.contains(original) else { return "the damaged file was lost with its copy" }
      return try digestAfterOpening(image) == digest
        ? nil : "neither the damaged nor the repaired file"
    }
    guard try digestAfterOpening(image) == nil else { return "the damaged file is served" }
    let disk = SimulatedDisk(image)
    let again = try repair(disk)
    guard let copy = again.copy, disk.image.bytes(of: .copy(copy)) == original else {
      return "a second repair leaves no copy"
    }
    guard disk.image.names.values.count(where: { disk.image.contents[$0] == original }) == 1 else {
      return "a second repair makes a second copy"
    }
    return try digestAfterOpening(disk.image) == digest ? nil : "a second repair saves other tasks"
  }

  /// Simulates a power cut after each of the operations.
  ///
  /// - Returns: The problems that were found, and the number of disk images that were checked.
  private func cutPower(
    afterEach operations: [DiskOperation],
    imagesPerMoment: Int
  ) -> (findings: [String], imageCount: Int) {
    var random = SplitMix64(seed: 7)
    var disk = CrashImages(durable: image)
    var seen: Set<UInt64> = []
    var findings: [String] = []
    for (index, operation) in operations.enumerated() {
      disk.perform(operation, using: &random)
      let density = CrashImages.Density(cuts: 2, subsets: 6)
      var candidates = disk.candidates(density, using: &random)
      if candidates.count > imagesPerMoment { candidates.shuffle(using: &random) }
      for candidate in candidates.prefix(imagesPerMoment) {
        let (image, kind) = candidate()
        guard seen.insert(image.fingerprint).inserted, let finding = problem(in: image) else {
          continue
        }
        findings.append("after \(operation.summary) (\(index + 1)), \(kind): \(finding)")
      }
    }
    return (findings, seen.count)
  }

  @Test func `a repair copies the damaged file and replaces it with the saved tasks`() throws {
    let disk = SimulatedDisk(image)
    let repair = try repair(disk)
    #expect(repair.copy == 1)
    #expect(repair.report.problems.map(\.line) == [5])
    #expect(repair.report.counts == [.waiting: 4])
    #expect(disk.image.bytes(of: .copy(1)) == original)
    #expect(Set(disk.image.names.keys) == [.journal, .copy(1)])
    let (_, table) = try Journal.open(SimulatedDisk(disk.image))
    #expect(table.numbers == [1, 3, 5, 6])
    #expect(table.record(of: .numbered(3))?.interruptionCount == 1)
    let inspection = try JournalInspection(disk.image.bytes(of: .journal) ?? [])
    #expect(inspection.report.isSound)
    #expect(inspection.report.wasClosed)
    #expect(inspection.report.generation == 2)
  }

  @Test func `a repair leaves a sound file alone`() throws {
    let repaired = SimulatedDisk(image)
    _ = try repair(repaired)
    let disk = SimulatedDisk(repaired.image)
    #expect(try repair(disk).copy == nil)
    #expect(disk.log.isEmpty)
    #expect(try JournalRepair.repair(SimulatedDisk(), at: .seconds(0)) == nil)
  }

  @Test func `a power cut leaves the damaged file, or the repaired file and a whole copy`()
    throws
  {
    let disk = SimulatedDisk(image)
    _ = try repair(disk)
    let (findings, imageCount) = cutPower(afterEach: disk.log, imagesPerMoment: 25)
    #expect(findings == [])
    #expect(imageCount > 40)
  }

  @Test(arguments: [
    PlantedBug.noFlush, .noFolderFlush, .flushAfterRename, .unlinkedFirst, .copiedInPlace,
  ])
  func `the crash simulator finds planted bugs in a repair`(bug: PlantedBug) throws {
    let disk = SimulatedDisk(image)
    _ = try repair(BuggyStorage(disk, bug))
    #expect(cutPower(afterEach: disk.log, imagesPerMoment: 40).findings != [])
  }

  @Test(arguments: [
    SimulatedDisk.Fault.error(ENOSPC), .half(ENOSPC), .error(EIO), .short,
  ])
  func `a repair with a failed call leaves the damaged file unchanged, and no other file beside it`(
    fault: SimulatedDisk.Fault
  ) throws {
    let whole = SimulatedDisk(image)
    _ = try repair(whole)
    for call in 1...whole.calls.count {
      let disk = SimulatedDisk(image)
      disk.plan(fault, atCall: call)
      do {
        let repair = try repair(disk)
        #expect(repair.copy == 1)
        #expect(try digestAfterOpening(disk.image) == digest)
      } catch let error as JournalRepair.PerhapsUndone {
        #expect(try digestAfterOpening(disk.image) == digest)
        #expect(disk.image.bytes(of: .copy(error.copy)) == original)
      } catch {
        #expect(error is SystemCallError || error is FileOpeningError, "call \(call): \(error)")
        #expect(disk.image.bytes(of: .journal) == original, "call \(call)")
        #expect(Set(disk.image.names.keys) == [.journal], "call \(call)")
      }
      #expect(cutPower(afterEach: disk.log, imagesPerMoment: 2).findings == [], "call \(call)")
    }
  }

  @Test func `a repair keeps an old copy of another file, and reuses an old copy of this file`()
    throws
  {
    var image = image
    image.apply(.create(.copy(1), node: 1))
    image.apply(.write(node: 1, offset: 0, Array(original.dropLast())))
    let other = SimulatedDisk(image)
    #expect(try repair(other).copy == 2)
    #expect(other.image.bytes(of: .copy(1)) == original.dropLast())
    #expect(other.image.bytes(of: .copy(2)) == original)

    image.apply(.write(node: 1, offset: 0, original))
    let same = SimulatedDisk(image)
    #expect(try repair(same).copy == 1)
    #expect(Set(same.image.names.keys) == [.journal, .copy(1)])
  }
}
