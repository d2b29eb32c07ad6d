/// Bugs that a store could have.
///
/// The tests plant them between the store and the disk.
enum PlantedBug: String, CaseIterable, Sendable {
  // Writing
  case noFlush = "files are never flushed"
  case lateFlush = "callers are notified before the flush"
  case everySecondFlush = "only every second flush is made"
  case shortWriteIgnored = "a short write is treated as complete"
  case writeErrorIgnored = "a failed write is treated as done"
  case noTruncation = "a torn end is never cut off"
  case truncationErrorIgnored = "a failed write that can't be cut off is treated as cut off"
  case truncationNotFlushed = "the file is not flushed after a failed write was cut off"
  case cutAtLine = "a torn end is cut off after its last whole line"
  case flushRetried = "a failed flush is retried"
  case flushErrorIgnored = "a failed flush is treated as done"
  case folderErrorIgnored = "a failed flush of the folder is treated as done"

  // The format
  case noChecksum = "checksums are not checked"
  case checksumOfEnds = "a line is treated as whole if its start and its end are"
  case noSequence = "lines may be lost, doubled or swapped"
  case batchMarkNotWritten = "lines do not mark that their batch continues"
  case batchMarkIgnored = "the mark that a batch continues is ignored"
  case durableTooSoon = "lines mark those of earlier writes as durable before they are flushed"
  case durableNever = "lines never mark earlier lines as durable"
  case noSeal = "no seal is written"
  case sealOfNothing = "the seal marks no earlier line as durable"
  case noBeginnings = "claims are not written"
  case noInterruption = "interruptions are not written"

  // Making and compacting
  case noFolderFlush = "the folder is never flushed"
  case newNameNotFlushed = "the folder is not flushed after the file was created"
  case compactedNameNotFlushed = "the folder is not flushed after the file was compacted"
  case flushAfterRename = "a new file is flushed after it is renamed, not before"
  case replacementNotFlushed = "a new file is not flushed before it is renamed"
  case unlinkedFirst = "the old file is removed before the new one is renamed"
  case copiedInPlace = "the new file is written over the old one, not renamed"
  case changesMeanwhileLost = "a compaction loses concurrent changes"
  case beginningsLost = "a compaction loses which tasks are running"
  case placesLost = "a compaction loses the order of tasks"
  case rolesForgotten = "a compaction forgets which task is the successor"
  case ordersForgotten = "a compaction forgets the order keys of tasks"
  case conditionsForgotten = "a compaction forgets the conditions of tasks"
  case failuresLost = "a compaction loses the errors of tasks"

  // Recovery
  case cacheTrusted = "the last lines are not rewritten at opening"
  case rewrittenAtEnd = "the last lines are rewritten at opening, but at the end"
  case openingNotFlushed = "what is written at opening is not flushed"
  case openingFolderNotFlushed = "the folder is not flushed at opening"
  case badLineIsTorn = "every bad line is treated as torn"
  case badLineIsDamage = "every bad line is treated as damage"
  case badLineAndGoodOneIsDamage = "a bad line before a good one is treated as damage"
  case noSweep = "leftovers are not removed"
  case leftoverTrusted = "the leftover of a compaction is treated as complete"

  /// The rules of `JSONFileStore` that bugs break.
  enum Rule: String, CaseIterable, Sendable {
    case groupCommit = "callers return after the flush"
    case wholeWrites = "short writes are continued"
    case failedWrite = "a failed write is undone durably, and its batches fail"
    case failedFlush = "a failed flush is never retried"
    case checksum = "the checksum covers all of a line"
    case sequence = "sequence numbers are contiguous"
    case batches = "a batch is stored as a whole or not at all"
    case durableLines = "a line marks exactly the durable lines"
    case seal = "closing seals the file"
    case attempts = "an attempt without an end counts as interrupted"
    case making = "a new file is flushed, then renamed, then the folder is flushed"
    case compaction = "a compaction keeps everything, including concurrent changes"
    case tornOrDamaged = "a torn end is cut off, damage is refused"
    case rewriting =
      "lines that may be unsynced are rewritten in place, and flushed with the folder"
    case sweeping = "the leftover of a new file after a crash is removed"
  }

  var rule: Rule {
    switch self {
    case .noFlush, .lateFlush, .everySecondFlush: .groupCommit
    case .shortWriteIgnored: .wholeWrites
    case .writeErrorIgnored, .noTruncation, .truncationErrorIgnored, .truncationNotFlushed,
      .cutAtLine:
      .failedWrite
    case .flushRetried, .flushErrorIgnored, .folderErrorIgnored: .failedFlush
    case .noChecksum, .checksumOfEnds: .checksum
    case .noSequence: .sequence
    case .batchMarkNotWritten, .batchMarkIgnored: .batches
    case .durableTooSoon, .durableNever: .durableLines
    case .noSeal, .sealOfNothing: .seal
    case .noBeginnings, .noInterruption: .attempts
    case .noFolderFlush, .newNameNotFlushed, .compactedNameNotFlushed, .flushAfterRename,
      .replacementNotFlushed, .unlinkedFirst, .copiedInPlace:
      .making
    case .changesMeanwhileLost, .beginningsLost, .placesLost, .rolesForgotten, .ordersForgotten,
      .conditionsForgotten, .failuresLost:
      .compaction
    case .badLineIsTorn, .badLineIsDamage, .badLineAndGoodOneIsDamage: .tornOrDamaged
    case .cacheTrusted, .rewrittenAtEnd, .openingNotFlushed, .openingFolderNotFlushed: .rewriting
    case .noSweep, .leftoverTrusted: .sweeping
    }
  }
}
