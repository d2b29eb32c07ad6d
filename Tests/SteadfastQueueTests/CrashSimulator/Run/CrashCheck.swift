import SteadfastRetry

@testable import SteadfastQueue

/// Simulates power cuts after every operation of a history, and recovers each disk.
struct CrashCheck {
  struct Figures: Sendable {
    var crashPoints = 0
    /// The number of times that a new file was renamed to the path of the journal.
    var replacements = 0
    var failedFlushes = 0
    var recoveries = 0
    /// The number of recoveries from a crash that came during or soon after another recovery.
    var nestedRecoveries = 0
    /// The number of files that were damaged after they were stored, and must be refused.
    var damagedFiles = 0
    /// The fingerprints of the recovered disk images.
    var images: Set<UInt64> = []
    /// The broken promises, each with the moment and the kind of the power cut.
    var findings: [String] = []
  }

  var density = CrashImages.Density(cuts: 4, subsets: 6)
  /// The maximum number of images to recover at each moment.
  ///
  /// The images are chosen at random.
  var imagesPerMoment = 60
  /// The number of times to damage the file after each flush.
  var damagesPerFlush = 2
  /// The first moment at which the power may fail.
  var firstMoment = 0
  /// The percentage of images for which the power fails again during the recovery.
  var nestedShare = 5
  /// Wraps the disk that the recovery uses.
  var wrap: @Sendable (any JournalStorage) -> any JournalStorage = { $0 }
  /// Whether to stop at the first finding.
  var stopsAtFinding = true
  var figures = Figures()

  /// The entries to store after a recovery.
  private static let laterEntries = [9_000_001, 9_000_002].map {
    JournalEntry.change(.insert(.make($0), onDuplicate: .keep))
  }

  private var random: SplitMix64
  /// The digests of the tasks after those entries, by the digests before.
  private var laterDigests: [UInt64: UInt64] = [:]
  /// The second crashes that were checked: the image's fingerprint, and the allowed digests.
  private var nestedImages: Set<[UInt64]> = []

  init(seed: UInt64) { random = SplitMix64(seed: seed) }

  /// Simulates power cuts at every moment of a history.
  mutating func check(_ history: History) {
    for operation in history.operations {
      switch operation {
      case .rename: figures.replacements += 1
      case .failedFlush: figures.failedFlushes += 1
      case .create, .remove, .write, .truncate, .flush, .flushFolder: break
      }
    }
    var disk = CrashImages()
    var lines = DurableLines()
    var promises = Promises()
    var events = history.events[...]
    for moment in 0...history.operations.count {
      do throws(Finding) {
        var isSealed = false
        while let next = events.first, next.moment <= moment {
          try promises.apply(next.event)
          if case .closed = next.event { isSealed = true }
          events.removeFirst()
        }
        let isFlushed = moment > 0 && history.operations[moment - 1].isFlush
        if isFlushed || isSealed { try damage(disk, lines, isSealed: isSealed) }
      } catch {
        figures.findings.append("before operation \(moment): \(error)")
        return
      }
      if moment >= firstMoment { check(disk, promises.allowed, moment, history) }
      if stopsAtFinding, !figures.findings.isEmpty { return }
      guard moment < history.operations.count else { return }
      disk.perform(history.operations[moment], using: &random)
      lines.perform(history.operations[moment])
    }
  }

  /// Damages lines that the file's last line must mark as durable, if the whole file is durable.
  private mutating func damage(
    _ disk: CrashImages,
    _ lines: DurableLines,
    isSealed: Bool
  ) throws(Finding) {
    guard disk.pending.isEmpty, let node = disk.durable.names[.journal],
      let whole = disk.durable.bytes(of: .journal),
      let bytes = try? JournalSource(whole).withoutReservation().readAll(),
      let lastLine = bytes.dropLast().lastIndex(of: 0x0A)
    else { return }
    // The last line of a closed file marks all lines before it as durable.
    let count = isSealed ? lastLine + 1 : min(lines.size(of: node), lastLine + 1)
    for _ in 0..<damagesPerFlush {
      let damage = Damage.allCases[Int(random.next() % UInt64(Damage.allCases.count))]
      guard let damaged = damage.applied(to: bytes, first: count, using: &random) else { continue }
      figures.damagedFiles += 1
      let disk = SimulatedDisk(DiskImage(journal: damaged))
      guard (try? Journal.open(wrap(disk))) == nil else {
        throw Finding("\(damage.rawValue) in durable lines was not detected")
      }
      guard disk.log.isEmpty else { throw Finding("a damaged file was changed") }
    }
  }

  private mutating func check(
    _ disk: CrashImages,
    _ allowed: ArraySlice<Promises.Stage>,
    _ moment: Int,
    _ history: History
  ) {
    figures.crashPoints += 1
    var candidates = disk.candidates(density, using: &random)
    // Always check the image of the durable contents: it best reveals promises made too early.
    if candidates.count > imagesPerMoment { candidates[1...].shuffle(using: &random) }
    var seen: Set<UInt64> = []
    for candidate in candidates where seen.count < imagesPerMoment {
      let (image, kind) = candidate()
      let fingerprint = image.fingerprint
      guard seen.insert(fingerprint).inserted else { continue }
      figures.images.insert(fingerprint)
      do throws(Finding) {
        try recover(image, allowed)
      } catch {
        let operation = moment == 0 ? "the start" : history.operations[moment - 1].summary
        figures.findings.append("after \(operation) (\(moment)), \(kind): \(error)")
        if stopsAtFinding { return }
      }
    }
  }

  // MARK: One image

  /// Recovers an image, stores a batch, and opens the file again.
  private mutating func recover(
    _ image: DiskImage,
    _ allowed: ArraySlice<Promises.Stage>
  ) throws(Finding) {
    let disk = SimulatedDisk(image)
    var (journal, digest) = try open(disk)
    guard let stage = allowed.last(where: { $0.digest == digest }) else {
      throw Finding("recovered a state that was never promised, or lost one that was")
    }
    let recovered = disk.log.count
    let after = try storeLaterEntries(&journal, from: stage)
    let (_, found) = try open(SimulatedDisk(disk.image))
    guard found == after else {
      throw Finding("the next recovery doesn't find what was stored after this one")
    }
    guard random.next() % 100 < UInt64(nestedShare) else { return }
    try cutPowerAgain(image, disk.log, recovered, before: digest, after: after)
  }

  private mutating func open(_ disk: SimulatedDisk) throws(Finding) -> (Journal, UInt64) {
    figures.recoveries += 1
    do {
      var (journal, table) = try Journal.open(wrap(disk))
      return (journal, table.takeDigest())
    } catch {
      throw Finding("the recovery refused the file: \(error)")
    }
  }

  /// Stores a batch, and returns the digest of the tasks after the batch.
  private mutating func storeLaterEntries(
    _ journal: inout Journal,
    from stage: Promises.Stage
  ) throws(Finding) -> UInt64 {
    do {
      try journal.append([try Self.laterEntries.map { try JournalBody($0) }])
      try journal.synchronize()
    } catch {
      throw Finding("nothing can be stored after the recovery: \(error)")
    }
    if let digest = laterDigests[stage.digest] { return digest }
    var table = stage.table
    table.interruptLeased()
    for entry in Self.laterEntries { _ = table.replay(entry) }
    let digest = table.takeDigest()
    laterDigests[stage.digest] = digest
    return digest
  }

  /// Simulates a second power cut, during the recovery or while a batch is stored afterwards.
  private mutating func cutPowerAgain(
    _ image: DiskImage,
    _ operations: [DiskOperation],
    _ recovered: Int,
    before: UInt64,
    after: UInt64
  ) throws(Finding) {
    var disk = CrashImages(durable: image)
    let thin = CrashImages.Density(cuts: 1, subsets: 1)
    for (index, operation) in operations.enumerated() {
      disk.perform(operation, using: &random)
      let isDone = index + 1 == operations.count
      let digests = isDone ? [after] : index < recovered ? [before] : [before, after]
      for candidate in disk.candidates(thin, using: &random) {
        let image = candidate().image
        let fingerprint = image.fingerprint
        guard nestedImages.insert([fingerprint] + digests).inserted else { continue }
        figures.images.insert(fingerprint)
        figures.nestedRecoveries += 1
        let (_, digest) = try open(SimulatedDisk(image))
        guard digests.contains(digest) else {
          throw Finding("a crash after operation \(index + 1) of the recovery changed its result")
        }
      }
    }
  }
}
