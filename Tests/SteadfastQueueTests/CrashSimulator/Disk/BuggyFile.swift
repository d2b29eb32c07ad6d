import Synchronization

@testable import SteadfastQueue

/// A file of a storage with a bug.
final class BuggyFile: JournalFile {
  private struct State {
    var needsFlush = false
    /// Whether the latest change is a truncation that hasn't been flushed.
    var wasCut = false
    /// Whether the file was flushed since it was opened.
    var wasFlushed = false
  }

  private let file: any JournalFile
  private let storage: BuggyStorage
  private let isNew: Bool
  private let state = Mutex(State())

  init(_ file: any JournalFile, of storage: BuggyStorage, isNew: Bool) {
    self.file = file
    self.storage = storage
    self.isNew = isNew
  }

  func size() throws(SystemCallError) -> Int { try file.size() }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    let bytes = try file.read(count, at: offset)
    switch storage.bug {
    case .noChecksum: return bytes.changingLines { $0.mendChecksum() }
    case .checksumOfEnds: return bytes.changingLines { $0.mendChecksumIfClosed() }
    case .noSequence where offset == 0: return bytes.renumberingLines()
    case .batchMarkIgnored: return bytes.changingLines { $0.moveBatchMark() }
    case .changesMeanwhileLost where offset > 0: return bytes.changingLines { $0.replaceWithSeal() }
    case .badLineIsTorn: return bytes.changingLines { $0.claimDurable(.none) }
    case .badLineAndGoodOneIsDamage: return bytes.claimingAllLinesDurable()
    case .badLineIsDamage where offset == 0 && bytes.hasBadLine:
      throw SystemCallError("it is damaged", 0)
    default: return bytes
    }
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    state.withLock { $0.wasCut = false }
    let size = try file.size()
    switch storage.bug {
    case .lateFlush: try flushIfNeeded()
    case .cacheTrusted where offset < size: return bytes.count
    case .rewrittenAtEnd where offset < size: return try file.write(bytes, at: size)
    case .noSeal where bytes.isLine(ofKind: "seal"): return bytes.count
    case .shortWriteIgnored:
      _ = try file.write(bytes, at: offset)
      return bytes.count
    case .writeErrorIgnored: return (try? file.write(bytes, at: offset)) ?? bytes.count
    case .noChecksum where offset < size, .checksumOfEnds where offset < size,
      .noSequence where offset < size, .batchMarkIgnored where offset < size,
      .badLineIsTorn where offset < size, .badLineAndGoodOneIsDamage where offset < size:
      // With these bugs, `read(_:at:)` changes the bytes. The unchanged bytes must be written back.
      return try file.write(try file.read(bytes.count, at: offset)[...], at: offset)
    default: break
    }
    return try file.write(applyingBug(to: Array(bytes))[...], at: offset)
  }

  /// Changes the bytes to write as the bug does.
  private func applyingBug(to bytes: [UInt8]) -> [UInt8] {
    switch storage.bug {
    case .batchMarkNotWritten: return bytes.changingLines { $0.moveBatchMark() }
    case .durableTooSoon:
      let first = bytes.firstSequence
      return bytes.changingLines { $0.claimDurable(.upTo(first)) }
    case .durableNever: return bytes.changingLines { $0.claimDurable(.none) }
    case .sealOfNothing where bytes.isLine(ofKind: "seal"):
      return bytes.changingLines { $0.claimDurable(.none) }
    case .noInterruption: return bytes.changingLines { $0.replaceWithSeal(ifKind: "interruption") }
    case .noBeginnings: return bytes.changingLines { $0.replaceWithSeal(ifKind: "begin") }
    case .beginningsLost where isNew && bytes.holdsKeptTasks:
      return bytes.changingLines { $0.replaceWithSeal(ifKind: "begin") }
    case .placesLost: return bytes.changingLines { $0.resetPlace() }
    case .rolesForgotten: return bytes.changingLines { $0.hideField("role", inLinesOf: "kept") }
    case .ordersForgotten: return bytes.changingLines { $0.hideField("order", inLinesOf: "kept") }
    case .conditionsForgotten:
      return bytes.changingLines { $0.hideField("requires", inLinesOf: "kept") }
    case .failuresLost: return bytes.changingLines { $0.hideField("error", inLinesOf: "task") }
    default: return bytes
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    state.withLock { $0.wasCut = true }
    switch storage.bug {
    case .noTruncation: return
    case .truncationErrorIgnored: try? file.truncate(to: size)
    case .cutAtLine:
      let bytes = try file.read(try file.size(), at: 0)
      let end = bytes.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
      try file.truncate(to: max(size, end))
    default: try file.truncate(to: size)
    }
  }

  func synchronize() throws(SystemCallError) {
    let state = state.withLock { state in
      defer {
        state.wasCut = false
        state.wasFlushed = true
      }
      return state
    }
    switch storage.bug {
    case .noFlush: return
    case .lateFlush: self.state.withLock { $0.needsFlush = true }
    case .everySecondFlush where storage.takeEvenFlush(): return
    case .truncationNotFlushed where state.wasCut: return
    case .openingNotFlushed where !isNew && !state.wasFlushed: return
    case .flushAfterRename where storage.postponeFlush(of: file): return
    case .replacementNotFlushed where storage.postponeFlush(of: file): return
    case .flushErrorIgnored: try? file.synchronize()
    case .flushRetried:
      do { try file.synchronize() } catch { try file.synchronize() }
    default: try file.synchronize()
    }
  }

  private func flushIfNeeded() throws(SystemCallError) {
    let mustFlush = state.withLock { state in
      defer { state.needsFlush = false }
      return state.needsFlush
    }
    if mustFlush { try file.synchronize() }
  }

  func close() {
    // With this bug, the file must stay open: it is flushed after it is renamed.
    if storage.bug != .flushAfterRename { file.close() }
  }
}
