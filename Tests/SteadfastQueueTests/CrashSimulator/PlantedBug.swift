import Synchronization

@testable import SteadfastQueue

/// Bugs that a store could have, planted between it and the disk.
enum PlantedBug: String, CaseIterable, Sendable {
  case noFlush = "files are never flushed"
  case noFolderFlush = "the folder is never flushed"
  case flushAfterRename = "a new file is flushed after it took its name, not before"
  case lateFlush = "callers are told before the flush"
  case flushRetried = "a flush that failed is tried again"
  case flushErrorIgnored = "a flush that failed is taken for done"
  case folderErrorIgnored = "a flush of the folder that failed is taken for done"
  case noTruncation = "what is torn is never cut off"
  case cacheTrusted = "the last lines are not written again at opening"
  case noChecksum = "checksums are not looked at"
  case tornTailRefused = "every line is taken to know those before it to be durable"
  case shortWriteIgnored = "a short write is taken for a whole one"
  case writeErrorIgnored = "a write that failed is taken for done"
  case noSweep = "leftovers are not removed"
  case unlinkedFirst = "the old file is removed before the new one takes its name"
  case copiedInPlace = "the new file is written over the old one, not renamed"
}

/// A storage with a bug.
final class BuggyStorage: JournalStorage {
  fileprivate let bug: PlantedBug
  private let storage: any JournalStorage
  /// A file that has no name of its own yet, and whether a flush of it is owed.
  private let newFile = Mutex<(file: any JournalFile, owesFlush: Bool)?>(nil)

  init(_ storage: any JournalStorage, _ bug: PlantedBug) {
    self.storage = storage
    self.bug = bug
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    try storage.open(name).map { BuggyFile($0, self) }
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    let file = try storage.create(name)
    newFile.withLock { $0 = (file, false) }
    return BuggyFile(file, self)
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    let new = newFile.withLock { new in
      defer { new = nil }
      return new
    }
    switch bug {
    case .unlinkedFirst:
      try storage.remove(other)
      try storage.synchronizeFolder()
    case .copiedInPlace:
      if let new, let old = try? storage.open(other) {
        try old.truncate(to: 0)
        try old.writeAll(try new.file.read(try new.file.size(), at: 0)[...], at: 0)
        try old.synchronize()
      }
    default: break
    }
    try storage.rename(name, to: other)
    if bug == .flushAfterRename, let new, new.owesFlush {
      try storage.synchronizeFolder()
      try new.file.synchronize()
    }
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    if bug != .noSweep { try storage.remove(name) }
  }

  func synchronizeFolder() throws(SystemCallError) {
    switch bug {
    case .noFolderFlush: return
    case .folderErrorIgnored: try? storage.synchronizeFolder()
    default: try storage.synchronizeFolder()
    }
  }

  /// Whether the file has no name of its own yet; a flush of it is owed then.
  fileprivate func putFlushOff(_ file: any JournalFile) -> Bool {
    newFile.withLock { new in
      guard let present = new, present.file === file else { return false }
      new = (file, true)
      return true
    }
  }
}

private final class BuggyFile: JournalFile {
  private let file: any JournalFile
  private let storage: BuggyStorage
  private let owesFlush = Mutex(false)

  init(_ file: any JournalFile, _ storage: BuggyStorage) {
    self.file = file
    self.storage = storage
  }

  func size() throws(SystemCallError) -> Int { try file.size() }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    let bytes = try file.read(count, at: offset)
    switch storage.bug {
    case .noChecksum: return bytes.withLines { $0.mendChecksum() }
    case .tornTailRefused: return bytes.withLines { $0.claimAllDurable() }
    default: return bytes
    }
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    if storage.bug == .lateFlush { try flushIfOwed() }
    switch storage.bug {
    case .cacheTrusted where try offset < file.size(): return bytes.count
    case .shortWriteIgnored:
      _ = try file.write(bytes, at: offset)
      return bytes.count
    case .writeErrorIgnored: return (try? file.write(bytes, at: offset)) ?? bytes.count
    default: return try file.write(bytes, at: offset)
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    if storage.bug != .noTruncation { try file.truncate(to: size) }
  }

  func synchronize() throws(SystemCallError) {
    switch storage.bug {
    case .noFlush: return
    case .lateFlush: owesFlush.withLock { $0 = true }
    case .flushAfterRename where storage.putFlushOff(file): return
    case .flushErrorIgnored: try? file.synchronize()
    case .flushRetried:
      do { try file.synchronize() } catch { try file.synchronize() }
    default: try file.synchronize()
    }
  }

  private func flushIfOwed() throws(SystemCallError) {
    let owes = owesFlush.withLock { owes in
      defer { owes = false }
      return owes
    }
    if owes { try file.synchronize() }
  }

  func close() { file.close() }
}

extension [UInt8] {
  /// The bytes with each line changed.
  fileprivate func withLines(_ change: (inout [UInt8]) -> Void) -> [UInt8] {
    var parts = split(separator: 0x0A, omittingEmptySubsequences: false).map { Array($0) }
    for index in parts.indices { change(&parts[index]) }
    return Array(parts.joined(separator: [0x0A]))
  }

  /// Writes the checksum that the rest has.
  fileprivate mutating func mendChecksum() {
    let start = #"{"c":""#.utf8.count
    guard count > start + 8, starts(with: #"{"c":""#.utf8) else { return }
    let sum = CRC32C.checksum(self[(start + 8)...])
    for digit in 0..<8 {
      self[start + digit] = Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32(digit))))
    }
  }

  /// Says that all lines before were durable, where the number has as many digits.
  fileprivate mutating func claimAllDurable() {
    guard let line = JournalLine(self, indices) else { return }
    let (old, new) = (Array(String(line.firstUnsynced).utf8), Array(String(line.sequence).utf8))
    guard old.count == new.count else { return }
    let start = #"{"c":"00000000","b":"#.utf8.count
    replaceSubrange(start..<start + new.count, with: new)
    mendChecksum()
  }
}
