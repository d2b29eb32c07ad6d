/// Bugs that a store could have, planted between it and the disk.
enum PlantedBug: String, CaseIterable, Sendable {
  // Writing
  case noFlush = "files are never flushed"
  case lateFlush = "callers are told before the flush"
  case everySecondFlush = "only every second flush is made"
  case shortWriteIgnored = "a short write is taken for a whole one"
  case writeErrorIgnored = "a write that failed is taken for done"
  case noTruncation = "what is torn is never cut off"
  case truncationErrorIgnored = "a failed write that can't be cut off is taken for cut off"
  case truncationNotFlushed = "that a failed write was cut off is not flushed"
  case cutAtLine = "what is torn is cut off behind its last whole line"
  case flushRetried = "a flush that failed is tried again"
  case flushErrorIgnored = "a flush that failed is taken for done"
  case folderErrorIgnored = "a flush of the folder that failed is taken for done"

  // The format
  case noChecksum = "checksums are not looked at"
  case checksumOfEnds = "a line is taken for whole if its beginning and its end are"
  case noSequence = "lines may be lost, doubled or swapped"
  case batchMarkNotWritten = "lines do not say that their batch goes on"
  case batchMarkIgnored = "it is not looked at whether a batch goes on"
  case durableTooSoon = "lines take those of earlier writes for durable before they are flushed"
  case durableNever = "lines take none of those before for durable"
  case noSeal = "no seal is written"
  case sealOfNothing = "the seal takes none of the lines before for durable"
  case noBeginnings = "claims are not written"
  case noInterruption = "interruptions are not written"

  // Making and compacting
  case noFolderFlush = "the folder is never flushed"
  case newNameNotFlushed = "the folder is not flushed when the file was made"
  case compactedNameNotFlushed = "the folder is not flushed when the file was compacted"
  case flushAfterRename = "a new file is flushed after it took its name, not before"
  case replacementNotFlushed = "a new file is not flushed before it takes its name"
  case unlinkedFirst = "the old file is removed before the new one takes its name"
  case copiedInPlace = "the new file is written over the old one, not renamed"
  case changesMeanwhileLost = "a compaction loses what changes meanwhile"
  case beginningsLost = "a compaction loses which tasks are being performed"
  case placesLost = "a compaction loses the order of tasks"
  case rolesForgotten = "a compaction forgets which task is the successor"
  case ordersForgotten = "a compaction forgets the order keys of tasks"
  case conditionsForgotten = "a compaction forgets the conditions of tasks"
  case failuresLost = "a compaction loses the errors of tasks"

  // Recovery
  case cacheTrusted = "the last lines are not written again at opening"
  case rewrittenAtEnd = "the last lines are written again at opening, but at the end"
  case openingNotFlushed = "what is written at opening is not flushed"
  case openingFolderNotFlushed = "the folder is not flushed at opening"
  case badLineIsTorn = "every bad line is taken for torn"
  case badLineIsDamage = "every bad line is taken for damage"
  case badLineAndGoodOneIsDamage = "a bad line with a good one behind it is taken for damage"
  case noSweep = "leftovers are not removed"
  case leftoverTrusted = "what a compaction has left is taken for whole"

  /// What `JSONFileStore` promises and the bug breaks.
  enum Rule: String, CaseIterable, Sendable {
    case groupCommit = "callers return after the flush"
    case wholeWrites = "short writes are continued"
    case failedWrite = "a failed write is taken back, for good, and its batches fail"
    case failedFlush = "a flush that failed is never retried"
    case checksum = "the checksum covers all of a line"
    case sequence = "sequence numbers are contiguous"
    case batches = "a batch is there as a whole or not at all"
    case durableLines = "a line knows what was durable, no more and no less"
    case seal = "closing seals the file"
    case attempts = "what was begun and not ended counts as interrupted"
    case making = "a new file is flushed, then named, then the folder is flushed"
    case compaction = "a compaction keeps everything, whatever changes meanwhile"
    case tornOrDamaged = "a torn end is cut off, damage is refused"
    case rewriting = "what may be unsynced is written again in place and flushed, folder and all"
    case sweeping = "what a crash has left of a new file is removed"
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
